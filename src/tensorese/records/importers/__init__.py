"""Foreign records in: Ansor logs and MetaSchedule databases, distinguished by their contents."""

from tensorese.records.importers.detect import FORMATS, read_records
from tensorese.records.importers.kinds import of_one_kind, target_kind
from tensorese.records.importers.lines import Skipped

__all__ = ["FORMATS", "Skipped", "of_one_kind", "read_records", "target_kind"]
