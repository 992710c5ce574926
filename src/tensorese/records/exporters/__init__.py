"""Our records in foreign formats, for stock TVM and for tools that read Ansor logs."""

from tensorese.records.exporters.ansor import write_ansor
from tensorese.records.exporters.metaschedule import write_metaschedule

__all__ = ["write_ansor", "write_metaschedule"]
