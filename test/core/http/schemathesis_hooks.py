"""What Schemathesis cannot know from the documents."""

import re

import schemathesis


# Paths that also have a page, which the document does not: browsers open it with the link of a mail.
PATHS_WITH_PAGES = {"/api/auth/reset-password", "/api/auth/unlock", "/api/auth/verify-email"}


def narrow(part):
    """It generates no text for patterns with Unicode categories, so it gets a subset, printable ASCII, instead."""
    if isinstance(part, list):
        return [narrow(each) for each in part]
    if not isinstance(part, dict):
        return part
    copy = {name: narrow(value) for name, value in part.items()}
    pattern = copy.get("pattern")
    if isinstance(pattern, str) and "\\p{" in pattern:
        # A letter first, because names must not be blank.
        copy["pattern"] = "^([A-Za-z][ -~]*)?$" if pattern.startswith("^$|") or pattern.endswith("*$") else "^[A-Za-z][ -~]*$"
    elif isinstance(pattern, str):
        copy["pattern"] = re.sub(r"\\P\{\w+\}", "[ -~]", pattern)
    return copy


@schemathesis.hook
def before_load_schema(context, raw_schema):
    raw_schema.update(narrow(raw_schema))


@schemathesis.hook
def filter_case(context, case):
    return case.method != "GET" or case.path not in PATHS_WITH_PAGES
