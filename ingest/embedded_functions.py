"""Functions by name: which table functions are harmless, and what is refused whatever it is.

The engine's rights refuse most of what reaches out of the tables. Names are looked at beside them,
because a scalar function needs no right: `file('/etc/passwd')` would answer.
"""

from __future__ import annotations

from typing import Final

ALLOWED_TABLE_FUNCTIONS: Final = frozenset(
    {
        *("numbers", "numbers_mt", "zeros", "zeros_mt", "primes", "generaterandom"),
        *("generateseries", "generate_series", "values", "sqlstandardvalues", "null", "format"),
        *("merge", "loop", "view", "viewifpermitted", "viewexplain"),
        *("mergetreeindex", "mergetreeprojection", "mergetreetextindex"),
        "mergetreecodecblockcounts",
    }
)
"""Those that read nothing but tables and their own arguments; lower case. All others that the
engine has, and that its next version will have, are refused."""

REFUSED_FUNCTIONS: Final = frozenset(
    {
        *("file", "filesystem", "url", "s3", "hdfs", "executable", "python", "sqlite", "disk"),
        *("remote", "remotesecure", "cluster", "mysql", "postgresql", "mongodb", "redis"),
        *("jdbc", "odbc", "icebergs3", "iceberglocal", "arrowstream", "dictionary", "input"),
        *("eval", "catboostevaluate", "reversednsquery", "getserversetting", "showcertificate"),
        *("aigenerate", "aiextract", "aiclassify", "aifilter", "aiembed", "aisimilarity"),
        "airedact",
    }
)
"""Refused even where the engine does not list them as table functions."""
