"""The page of the conversion table is what the table says."""

import importlib.util
from pathlib import Path

from tests.docs.pages import ROOT


def test_the_conversion_table_is_up_to_date() -> None:
    source = ROOT / "docs" / "generate_conversion_table.py"
    spec = importlib.util.spec_from_file_location("generate_conversion_table", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    committed = Path(module.PAGE).read_text(encoding="utf-8")
    assert committed == module.page(), "run: python docs/generate_conversion_table.py"
