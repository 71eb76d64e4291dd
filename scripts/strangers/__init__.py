"""Networks as strangers write them: own code for public architectures, their authors' losses, modes and batches."""

from strangers.case import STRANGERS as STRANGERS
from strangers.case import Stranger as Stranger
from strangers.case import Task as Task

from . import (  # noqa: F401  # each adds its own to STRANGERS
    apart,
    apart_healthy,
    blind2,
    blind2_healthy,
    blind3,
    blind3_healthy,
    blind4,
    blind4_healthy,
    blind5,
    blind5_healthy,
    blind6,
    blind6_healthy,
    blind7,
    blind7_healthy,
    blind8,
    blind8_healthy,
    blind9,
    blind9_healthy,
    blind10,
    blind10_healthy,
    blind10_words,
    blind11,
    blind11_healthy,
    blind11_words,
    blind12,
    blind12_healthy,
    blind12_words,
    blind13,
    blind13_healthy,
    blind13_issues,
    blind14,
    convolutional,
    language,
    other,
    reports,
    vision,
)
