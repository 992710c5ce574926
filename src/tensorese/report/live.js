// The dashboard's only script: asks its own server for the page's body, every two seconds while
// somebody looks, and puts it in place when it has changed. Folds stay as the reader left them.
"use strict";
const main = document.querySelector("main");
const line = document.querySelector("#live");
let seen = "";

function show(text) {
  const open = [...main.querySelectorAll("details")].map((fold) => fold.open);
  main.innerHTML = text;
  main.querySelectorAll("details").forEach((fold, at) => { fold.open = Boolean(open[at]); });
}

async function look() {
  try {
    const reply = await fetch("body", { cache: "no-store", headers: { "If-None-Match": seen } });
    if (reply.status === 200) {
      show(await reply.text());
      seen = reply.headers.get("ETag");
    }
    line.textContent = reply.status < 400 ? "live" : await reply.text();
  } catch {
    line.textContent = "The dashboard has ended; this is what it showed last.";
  }
}

async function again() {
  if (!document.hidden) await look();
  setTimeout(again, 2000);
}

document.addEventListener("visibilitychange", () => document.hidden || look());
again();
