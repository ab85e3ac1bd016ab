"""The trends of tables: a section of the page, a sentence, and JSON."""

from __future__ import annotations

from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.stored import HealthDay
from iceberg_maint.report.fleet import table_trend, trend_document, trend_sentence, trends_section
from iceberg_maint.report.page import Page, render_html, render_markdown

TODAY = 20_000
NOW_MS = TODAY * 86_400_000
THRESHOLD = Policy().rewrite_data_files.min_input_files


def trend(*counts: float, name: str = "db.t"):
    first = TODAY - len(counts) + 1
    days = [HealthDay(first + n, {"small_files": 2 * c, "most_small_files": c}) for n, c in enumerate(counts)]
    return table_trend(name, days, Policy(), NOW_MS)


GROWING = tuple(THRESHOLD - n for n in (3.5, 3.0, 2.5, 2.0))


def test_sentence_of_a_growing_table_says_in_how_many_days():
    assert trend_sentence(trend(*GROWING)) == (
        f"a partition reaches {THRESHOLD} small files (rewrite_data_files.min_input_files) in about 4 days, "
        "by the median slope of 4 measured days"
    )


def test_sentence_without_a_forecast_is_empty():
    assert trend_sentence(trend(1, 1, 1, 1)) == ""
    assert trend_sentence(trend(THRESHOLD, THRESHOLD + 1, THRESHOLD + 2, THRESHOLD + 3)) == ""


def test_document_has_days_and_forecast():
    document = trend_document(trend(*GROWING))
    assert document["days"][-1] == {
        "day": TODAY,
        "small_files": 2 * (THRESHOLD - 2),
        "most_small_files": THRESHOLD - 2,
    }
    assert document["forecast"] == {
        "metric": "most_small_files",
        "key": "rewrite_data_files.min_input_files",
        "threshold": THRESHOLD,
        "in_days": 4.0,
        "per_day": 0.5,
        "days": 4,
        "why": "median slope of 4 measured days",
    }


def test_section_puts_the_nearest_forecast_first_and_omits_one_day():
    section = trends_section(
        [trend(1, 1, 1, 1, name="flat"), trend(3, name="new"), trend(*GROWING, name="grows")]
    )
    assert section is not None
    assert [s.label for s in section.sparklines] == ["grows", "flat"]
    assert (
        section.sparklines[1].text
        == "2 to 2 small files; in the partition with the most, no forecast: the number does not grow"
    )
    assert trends_section([trend(3)]) is None


def test_sparkline_is_drawn_without_script_and_a_hostile_name_is_text():
    section = trends_section([trend(1, 2, name="<script>x</script>")])
    assert section is not None
    page = Page("Title", "made", "Text.", (), (section,))
    assert '<polyline points="0.0,10.0 100.0,1.0"/>' in render_html(page)
    assert "<script" not in render_html(page)
    assert "2 to 4 small files" in render_markdown(page)
