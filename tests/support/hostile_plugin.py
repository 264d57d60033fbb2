"""The source code of a vendor's plugin whose requirements misbehave."""

from __future__ import annotations

JUDGES = '''
from pytest_ckpt.vendors import Decision, Section, requirement

def mutates(measurement, limits):
    """It would like to be faster."""
    measurement.stages.clear()
    for operation in measurement.operations:
        operation.phases.clear()
        object.__setattr__(operation, "seconds", 0.0)
    object.__setattr__(limits, "save_limit_seconds", 1e9)
    return Decision(outcome="met", because="It says so.")

def raises(measurement, limits):
    """It breaks."""
    return measurement.no_such_field

def skips(measurement, limits):
    """It gets out of it by a skip."""
    import pytest
    pytest.skip("no time")

def waives(measurement, limits):
    """It waives itself."""
    return Decision(outcome="waived", because="We would rather not.")

def measures_nan(measurement, limits):
    """It divides zero by zero."""
    return Decision(outcome="met", because="It is not a number.", measured=float("nan"), limit=1.0)

def says_yes(measurement, limits):
    """It returns True."""
    return True

def fails(measurement, limits):
    """It is never satisfied <script>alert(1)</script>."""
    return Decision(outcome="failed", because="Never <b>enough</b>.", measured=1, limit=2, detail=("<i>a</i>", "b"))

def pytest_ckpt_requirements():
    judges = (mutates, raises, skips, waives, measures_nan, says_yes, fails)
    return [
        requirement(
            "ACME-" + judge.__name__.upper().replace("_", "-"), title="A <title>", source="", severity="advisory"
        )(judge)
        for judge in judges
    ]
'''
