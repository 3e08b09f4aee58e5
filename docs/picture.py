"""Takes the picture of a report that stands in the README: the page on a laptop, and beside it on a phone.

    PYTHONPATH=. python docs/picture.py RUN_DIR/report.html

It needs Debian's chromium and chromium-driver, and Pillow, which matplotlib brings.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser.chromium import open_browser

PICTURE = Path(__file__).parent / "pictures" / "report.png"
HEIGHT, WIDTH = 1140, 1000  # of a window, and of the picture


def main(page: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        shots = []
        for name, width, scheme in (("laptop", 1280, "light"), ("phone", 390, "dark")):
            browser.look(page, width, HEIGHT, scheme)
            top = browser.run("return document.getElementById('map').offsetTop - 40") if width < 500 else 0
            browser.screenshot(Path(folder) / f"{name}.png", top, HEIGHT)
            shots.append(Image.open(Path(folder) / f"{name}.png").convert("RGB"))
    whole = Image.new("RGB", (sum(shot.width for shot in shots), HEIGHT))
    left = 0
    for shot in shots:
        whole.paste(shot, (left, 0))
        left += shot.width
    small = whole.resize((WIDTH, WIDTH * HEIGHT // whole.width), Image.Resampling.LANCZOS)
    PICTURE.parent.mkdir(exist_ok=True)
    small.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 2**10:.0f} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
