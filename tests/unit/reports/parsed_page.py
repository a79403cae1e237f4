"""The elements and the texts of a page."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "input", "hr", "path"}


class Page(HTMLParser):
    """The elements and the texts of a page, as a browser's parser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def list(self, tag: str) -> list[str]:
        return [" ".join(text.split()) for text in self.texts.get(tag, ())]
