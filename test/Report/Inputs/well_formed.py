"""Whether every element of a page is closed where it was opened, and none runs or loads anything."""
import html.parser
import sys

VOID = {"meta", "br", "path", "rect", "circle"}
NEVER = {"script", "iframe", "object", "embed", "link", "img", "base", "form", "foreignobject", "use", "image", "a"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attributes):
        self.check(tag, attributes)
        if tag not in VOID or tag in ("rect", "path"):
            if tag != "meta":
                self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.check(tag, attributes)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append("</%s> at line %d" % (tag, self.getpos()[0]))

    def check(self, tag, attributes):
        loads = [name for name, _ in attributes if name.startswith("on") or name in ("href", "src", "xlink:href")]
        if tag in NEVER or loads:
            self.wrong.append("<%s %s> at line %d" % (tag, loads, self.getpos()[0]))


with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
page = Page()
page.feed(text)
page.close()
if page.wrong or page.open:
    sys.exit("wrong: %s; still open: %s" % (page.wrong[:5], page.open))
if "http:" in text or "https:" in text or "@import" in text:
    sys.exit("it loads something")
print("well-formed, no script, nothing to load")
