import io

from PIL import Image

from wm.report.plots import Curve, draw


def test_curves_become_a_picture() -> None:
    data = draw([Curve("a", [1, 2], [3, 4], [2, 3], [4, 5]), Curve("b", [1, 2], [1, 1])], "title", "x", "y")
    assert Image.open(io.BytesIO(data)).size[0] > 500
