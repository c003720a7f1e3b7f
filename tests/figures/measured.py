"""The quick figures of each paper, measured once for all tests."""

from __future__ import annotations

from functools import cache

from ordercast.figures import amoeba, qsm, rmp, spread, tompa
from ordercast.figures.amoeba import AmoebaFigures, amoeba_figures
from ordercast.figures.amoeba_report import amoeba_report
from ordercast.figures.qsm import QsmFigures, qsm_figures
from ordercast.figures.qsm_report import qsm_report
from ordercast.figures.report import PaperReport
from ordercast.figures.rmp import RmpFigures, rmp_figures
from ordercast.figures.rmp_report import rmp_report
from ordercast.figures.spread import SpreadFigures, spread_figures
from ordercast.figures.spread_report import spread_report
from ordercast.figures.tompa import TompaFigures, tompa_figures
from ordercast.figures.tompa_report import tompa_report


@cache
def quick_amoeba() -> AmoebaFigures:
    return amoeba_figures(amoeba.QUICK)


@cache
def quick_rmp() -> RmpFigures:
    return rmp_figures(rmp.QUICK)


@cache
def quick_tompa() -> TompaFigures:
    return tompa_figures(tompa.QUICK)


@cache
def quick_spread() -> SpreadFigures:
    return spread_figures(spread.QUICK)


@cache
def quick_qsm() -> QsmFigures:
    """Some points of the full plan: the quick one has shorter runs, which are not on the page."""
    return qsm_figures(qsm.POINTS)


@cache
def quick_reports() -> dict[str, PaperReport]:
    return {
        "amoeba": amoeba_report(quick_amoeba()),
        "rmp": rmp_report(quick_rmp()),
        "tompa": tompa_report(quick_tompa()),
        "spread": spread_report(quick_spread()),
        "qsm": qsm_report(quick_qsm()),
    }
