"""Twelve chronic conditions of the Charlson index, from ICD-9-CM and ICD-10 codes.

Coding of Quan et al., Med Care 2005;43:1130–1139. The paper (section 6.3) has twelve prevalences
and does not say which of the index's seventeen categories they are. Here mild and severe forms of
liver disease, diabetes and cancer are one condition each, which makes fourteen; peptic ulcer and
hemiplegia, often acute, are left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Codes(NamedTuple):
    """Patterns that match the beginning of a code without its point."""

    icd9: str
    icd10: str


CONDITIONS: Final[dict[str, Codes]] = {
    "myocardial_infarction": Codes("41[02]", "I2[12]|I252"),
    "heart_failure": Codes(
        "428|39891|402[019]1|404[019][13]|425[4-9]",
        "I43|I50|I099|I110|I13[02]|I255|I42[056789]|P290",
    ),
    "peripheral_vascular": Codes(
        "44[01]|0930|4373|443[1-9]|4471|557[19]|V434",
        "I7[01]|I73[189]|I771|I79[02]|K55[189]|Z95[89]",
    ),
    "cerebrovascular": Codes("43[0-8]|36234", "G4[56]|I6\\d|H340"),
    "dementia": Codes("290|2941|3312", "F0[0-3]|G30|F051|G311"),
    "chronic_pulmonary": Codes(
        "49\\d|50[0-5]|416[89]|5064|508[18]", "J4[0-7]|J6[0-7]|I27[89]|J684|J70[13]"
    ),
    "rheumatic": Codes("725|4465|710[0-4]|714[0128]", "M0[56]|M3[2-4]|M315|M35[13]|M360"),
    "liver": Codes(
        "57[01]|070[69]|0702[23]|0703[23]|070[45]4|573[3489]|V427|456[0-2]|572[2-8]",
        "B18|K7[34]|K70[0-49]|K71[13457]|K72[19]|K76[02-9]|Z944|I85[09]|I864|I982",
    ),
    "diabetes": Codes("250", "E1[0-4]"),
    "renal": Codes(
        "58[256]|V56|5880|V420|V451|583[0-7]|403[019]1|404[019][23]",
        "N1[89]|I120|I131|N03[2-7]|N05[2-7]|N250|Z49[0-2]|Z940|Z992",
    ),
    "cancer": Codes(
        "1[4-6]\\d|17[0-2]|17[4-9]|18\\d|19\\d|20[0-8]|2386",
        "C[01]\\d|C2[0-6]|C3[0-4]|C3[7-9]|C4[01]|C43|C4[5-9]|C5[0-8]|C6\\d|C7\\d|C80|C8[1-5]"
        "|C88|C9[0-7]",
    ),
    "hiv": Codes("04[2-4]", "B2[0-24]"),
}


def flag(condition: str) -> str:
    """SQL: 1 if any row of a group of ``diagnoses`` (``icd_code``, ``icd_version``) matches."""
    codes = CONDITIONS[condition]
    return (
        f"max(CASE WHEN icd_version = '9' AND regexp_matches(icd_code, '^({codes.icd9})') "
        f"OR icd_version = '10' AND regexp_matches(icd_code, '^({codes.icd10})') "
        f"THEN 1 ELSE 0 END) AS {condition}"
    )
