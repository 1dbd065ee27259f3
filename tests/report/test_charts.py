import json
import math

from ebmlife.report.charts import Chart, Line, number, overlaid


def chart(**changes: object) -> Chart:
    fields = {"title": "t", "x": [0, 1, 2], "lines": [Line("a", [1.0, None, math.nan])], "x_name": "x", "y_name": "y"}
    return Chart(**(fields | changes))  # type: ignore[arg-type]


def test_the_script_gets_json_and_the_reader_is_told_what_is_not_finite() -> None:
    it = chart()
    assert json.loads(json.dumps(it.spec, allow_nan=False))["lines"][0]["values"] == [1.0, None, None]
    assert it.broken == 1  # the missing value is none


def test_the_table_keeps_both_ends() -> None:
    x = list(range(1000))
    rows = chart(x=x, lines=[Line("square", [i**2 for i in x])]).rows(most=5)
    assert rows[0] == ["x", "square"]
    assert rows[1] == ["0", "0"]
    assert rows[-1] == ["999", "998,001"]
    assert len(rows) == 6
    assert chart().rows() == [["x", "a"], ["0", "1"], ["1", ""], ["2", "nan"]]


def test_overlaid_charts_share_an_axis() -> None:
    one, two = chart(x=[0, 2], lines=[Line("", [5, 6])], marks={"end": 2}), chart(x=[1, 2], lines=[Line("", [7, 8])])
    both = overlaid({"one": one, "two": two})
    assert both.x == [0, 1, 2]
    assert [(line.name, line.values) for line in both.lines] == [("one", [5, None, 6]), ("two", [None, 7, 8])]
    assert both.marks == {"one: end": 2}
    assert both.y_name == "y"


def test_measures_that_differ_are_not_said_to_be_one() -> None:
    both = overlaid({"a": chart(y_name="fid_64", data=(1, 2)), "b": chart(y_name="fid_32")})
    assert "fid" not in both.y_name
    assert both.data is None


def test_numbers_as_people_read_them() -> None:
    shown = [number(value) for value in (None, 0, 1234567, 0.123456, -2.5, 1e-7, math.inf)]
    assert shown == ["", "0", "1,234,567", "0.1235", "-2.5", "1e-07", "inf"]
