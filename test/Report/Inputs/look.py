"""Looks at a page in a headless Chromium, in light and in dark: look.py PAGE SCRATCH.

The page is put into an invisible frame of a wrapper that measures it (the page itself may run no script), and
photographed by itself. The screenshots stay in SCRATCH."""
import os
import re
import subprocess
import sys

import png

page, scratch = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
os.makedirs(scratch, exist_ok=True)
WIDTH, HEIGHT = 1000, 1400


def chromium(*flags):
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--hide-scrollbars", "--force-device-scale-factor=1", "--user-data-dir=" + scratch + "/profile", *flags]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True).stdout.decode()


def measured(width):
    """What a script sees of the page at this width."""
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"<meta http-equiv[^>]*>", "", file.read())
    text += """<script>
      const root = document.documentElement, boxes = [...document.querySelectorAll('main svg')].map(s => s.getBoundingClientRect());
      const wide = [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > root.clientWidth + 1);
      document.title = 'overflow ' + (root.scrollWidth - root.clientWidth) + ' wide ' + wide.length + ' pictures ' + boxes.length +
        ' empty ' + boxes.filter(b => b.width < 10 || b.height < 4).length + ' height ' + root.scrollHeight;
      </script>"""
    copy = "%s/measured-%d.html" % (scratch, width)
    with open(copy, "w", encoding="utf-8") as file:
        file.write(text)
    dom = chromium("--window-size=%d,%d" % (width, HEIGHT), "--dump-dom", "file://" + copy)
    return re.search(r"<title>(overflow .*?)</title>", dom).group(1)


for width in (WIDTH, 560):
    words = measured(width).split()
    told = dict(zip(words[::2], map(int, words[1::2])))
    if told["overflow"] > 0 or told["wide"] > 0:
        sys.exit("at %d pixels the page overflows: %s" % (width, told))
    if told["pictures"] < 5 or told["empty"] > 0:
        sys.exit("at %d pixels there are pictures without a size: %s" % (width, told))
print("no overflow, every picture has a size")

brightness = {}
for scheme, setting in (("dark", 0), ("light", 1)):
    shot = "%s/%s.png" % (scratch, scheme)
    chromium("--window-size=%d,%d" % (WIDTH, HEIGHT), "--blink-settings=preferredColorScheme=%d" % setting,
             "--screenshot=" + shot, "file://" + page)
    width, height, rows = png.read(shot)
    colours = {}
    for row in rows[::4]:
        for x in range(0, 3 * width, 12):
            colour = row[x : x + 3]
            colours[colour] = colours.get(colour, 0) + 1
    common = max(colours, key=colours.get)
    brightness[scheme] = sum(common)
    ink = 1 - colours[common] / sum(colours.values())
    if len(colours) < 40 or ink < 0.05:
        sys.exit("the page is blank in %s: %d colours, %.3f covered" % (scheme, len(colours), ink))
    print("%s: many colours, not blank" % scheme)
if not (brightness["light"] > 690 and brightness["dark"] < 120):
    sys.exit("light is not light or dark is not dark: %s" % brightness)
print("light is light, dark is dark")
