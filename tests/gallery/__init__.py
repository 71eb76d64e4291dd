"""Networks with a known verdict: public bugs before and after their fix, and healthy ones that must stay unnamed."""

from tests.gallery.case import Batch, Case, Healthy, match
from tests.gallery.cases import CASES
from tests.gallery.healthy import HEALTHY

__all__ = ["CASES", "HEALTHY", "Batch", "Case", "Healthy", "match"]
