"""What to open when the module does not help: a page of figures about a run's memory."""

from nearl.inspection.findings import Finding
from nearl.inspection.measure import Measured, measure
from nearl.inspection.report import Inspection, inspect_run
from nearl.inspection.visits import Visits, open_run, visits_of

__all__ = [
    "Finding",
    "Inspection",
    "Measured",
    "Visits",
    "inspect_run",
    "measure",
    "open_run",
    "visits_of",
]
