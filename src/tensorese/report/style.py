"""The report's one style sheet: light and dark, no scripts, nothing fetched."""

from __future__ import annotations

CSS = """
:root { --page:#fcfcfb; --ink:#1a1a19; --soft:#5f5e5a; --rule:#e3e2dd; --grid:#ecebe6;
  --tile:#f4f3ef; --main:#2a6fbb; --rest:#a9a8a2; --faint:#d5d4ce; --bad:#b3412e;
  --s0:#2a6fbb; --s1:#d98c2b; --s2:#4b9a7d; --s3:#8a6bb8; --s4:#b3412e; --s5:#7d7c77; }
@media (prefers-color-scheme: dark) { :root { --page:#1a1a19; --ink:#ecebe6; --soft:#a9a8a2;
  --rule:#3a3936; --grid:#2b2a28; --tile:#242321; --main:#6aa5e8; --rest:#6d6c67; --faint:#484743;
  --bad:#e07b68; --s0:#6aa5e8; --s1:#e0a655; --s2:#6fbf9f; --s3:#b199db; --s4:#e07b68;
  --s5:#95948f; } }
* { box-sizing:border-box }
body { margin:0 auto; padding:2.2rem 1.4rem 4rem; max-width:1120px; background:var(--page);
  color:var(--ink); font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif }
h1 { font-size:1.7rem; margin:0; overflow-wrap:anywhere }
h2 { font-size:1.15rem; margin:2.6rem 0 .7rem }
p, .note { color:var(--soft); margin:.3rem 0 .8rem; max-width:76ch }
.tiles { display:flex; flex-wrap:wrap; gap:.8rem; margin:1.4rem 0 }
.tile { background:var(--tile); border-radius:8px; padding:.7rem 1rem; min-width:8rem }
.tile b { display:block; font-size:1.45rem; font-weight:600; font-variant-numeric:tabular-nums }
.tile span { color:var(--soft); font-size:.85rem }
.pair { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),1fr));
  gap:1.4rem }
figure { margin:0; max-width:560px } figcaption { color:var(--soft); font-size:.88rem }
svg.chart { width:100%; height:auto; display:block; overflow:visible }
svg text { font-size:12px; fill:var(--soft); font-family:inherit }
svg .end { text-anchor:end } svg .middle { text-anchor:middle } svg .name { fill:var(--ink) }
svg .value { fill:var(--ink); font-variant-numeric:tabular-nums }
.grid { stroke:var(--grid) } .axis { stroke:var(--rule) }
.line { fill:none; stroke:var(--main); stroke-width:2; stroke-linejoin:round }
.spark .line { stroke-width:1.5 } .dot { fill:var(--main); fill-opacity:.45 }
.last { fill:var(--main) }
.bars { display:grid; gap:.45rem; margin:.6rem 0 1rem; max-width:860px }
.row { display:grid; grid-template-columns:10rem 1fr 15rem; gap:0 .8rem; align-items:center }
.row .name { text-align:right; overflow-wrap:anywhere; line-height:1.25 }
.row .value { font-variant-numeric:tabular-nums }
.row .value i { color:var(--soft); font-style:normal; margin-left:.7rem }
svg.track { width:100%; height:20px; display:block; overflow:visible }
.bar { fill:var(--rest) } .ours { fill:var(--main) } .bad { fill:var(--bad) }
.soft { fill:var(--faint) }
.cut { fill:none; stroke:var(--page); stroke-width:3; vector-effect:non-scaling-stroke }
.spread { fill:none; stroke:var(--ink); stroke-width:1.5; vector-effect:non-scaling-stroke }
.s0{fill:var(--s0)} .s1{fill:var(--s1)} .s2{fill:var(--s2)} .s3{fill:var(--s3)}
.s4{fill:var(--s4)} .s5{fill:var(--s5)}
table { border-collapse:collapse; width:100%; font-size:.9rem }
th { text-align:left; font-weight:600; color:var(--soft); border-bottom:1px solid var(--rule) }
th, td { padding:.32rem .7rem .32rem 0; vertical-align:middle }
td { border-bottom:1px solid var(--grid) } td:first-child { overflow-wrap:anywhere }
.num { text-align:right; font-variant-numeric:tabular-nums; white-space:nowrap }
.small { color:var(--soft); font-size:.82rem; overflow-wrap:anywhere }
.key { display:flex; flex-wrap:wrap; gap:.3rem 1.2rem; margin:.6rem 0; font-size:.88rem }
.key i { display:inline-block; width:.75rem; height:.75rem; border-radius:2px; margin-right:.4rem }
.key .s0{background:var(--s0)} .key .s1{background:var(--s1)} .key .s2{background:var(--s2)}
.key .s3{background:var(--s3)} .key .s4{background:var(--s4)} .key .s5{background:var(--s5)}
dl { display:grid; grid-template-columns:minmax(8rem,max-content) 1fr; gap:.3rem 1.2rem;
  margin:.3rem 0; font-size:.9rem; max-width:90ch } dd { margin:0; color:var(--soft) }
details { margin-top:.6rem } summary { cursor:pointer; color:var(--soft) }
pre { background:var(--tile); padding:.8rem; border-radius:8px; overflow:auto; font-size:.82rem }
@media (max-width:640px) {
  body { padding:1.2rem 1rem 3rem } svg.chart text { font-size:16px }
  .tiles { gap:.5rem } .tile { flex:1 1 8rem; padding:.5rem .7rem }
  .row { grid-template-columns:1fr auto } .row .name { text-align:left }
  .row .track { grid-row:2; grid-column:1/-1 }
  dl { grid-template-columns:1fr } dt { margin-top:.3rem }
  .rows thead { display:none }
  .rows tr { display:grid; grid-template-columns:repeat(3,1fr); gap:.2rem .8rem; padding:.6rem 0;
    border-bottom:1px solid var(--rule) }
  .rows td { border:0; padding:0; text-align:left } .rows td:first-child { grid-column:1/-1 }
  .rows td:not(:first-child)::before { content:attr(data-name); display:block; color:var(--soft);
    font-size:.75rem }
}
"""
