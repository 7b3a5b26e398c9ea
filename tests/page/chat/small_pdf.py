"""Real PDFs of a few hundred bytes, in Helvetica."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def small_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """A page for each list of lines. A page without lines has no text at all, like a scanned one."""
    return _pages([
        b"BT /F1 12 Tf 72 740 Td 16 TL %s ET" % b" ".join(b"(%s) Tj T*" % line.encode("latin-1") for line in lines)
        if lines
        else b""
        for lines in pages
    ])  # fmt: skip


def placed_pdf(pages: Sequence[Sequence[tuple[int, int, str]]], annotations: Sequence[bytes] = ()) -> bytes:
    """Texts at (x, y), drawn in their order; the annotations are on each page."""
    drawn = (b" ".join(b"1 0 0 1 %d %d Tm (%s) Tj" % (x, y, text.encode()) for x, y, text in page) for page in pages)
    return _pages([b"BT /F1 11 Tf %s ET" % page for page in drawn], b"/Annots [%s]" % b" ".join(annotations))


def text_field(name: str, value: str) -> bytes:
    """An annotation: a field of a form."""
    said = f"/FT /Tx /T ({name}) /V ({value})".encode()
    return b"<< /Type /Annot /Subtype /Widget /Rect [200 700 400 716] %s >>" % said


def note(kind: str, text: str) -> bytes:
    """An annotation: Text or FreeText."""
    return f"<< /Type /Annot /Subtype /{kind} /Rect [72 600 300 620] /Contents ({text}) >>".encode()


def packed_pdf(drawing: bytes, pages: int = 1) -> bytes:
    """All pages have the same drawing, which is packed twice: 2 kB may hold gigabytes."""
    packed = zlib.compress(zlib.compress(drawing, 1))
    body = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(packed), packed)
    return _file(
        [CATALOG, b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b"4 0 R " * pages, pages), FONT, _page(5), body]
    )


def thick_pdf() -> bytes:
    """A billion pages: nine levels, each with ten references to the next."""
    levels = [
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (10 ** (9 - depth), b"%d 0 R " % (6 + depth) * 10)
        for depth in range(9)
    ]
    body = b"<< /Length 0 >>\nstream\n\nendstream"
    return _file([CATALOG, levels[0], FONT, _page(5), body, *levels[1:], _page(5)])


def _pages(drawings: Sequence[bytes], more: bytes = b"") -> bytes:
    objects, kids = [CATALOG, b"", FONT], []
    for body in drawings:
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(body), body))
        objects.append(_page(len(objects), more))
        kids.append(len(objects))
    of = b" ".join(b"%d 0 R" % kid for kid in kids)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (of, len(kids))
    return _file(objects)


def _page(contents: int, more: bytes = b"") -> bytes:
    return (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
        b"/Contents %d 0 R %s >>" % (contents, more)
    )


def _file(objects: Sequence[bytes]) -> bytes:
    made, starts = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    end = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return made + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, end)
