"""Foreign records in: Ansor logs and MetaSchedule databases, told apart by their contents."""

from tensorese.records.importers.detect import FORMATS, read_records
from tensorese.records.importers.lines import Skipped

__all__ = ["FORMATS", "Skipped", "read_records"]
