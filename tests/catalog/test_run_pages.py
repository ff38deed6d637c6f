from __future__ import annotations

import pytest

from catalog.errors import Invalid
from catalog.run_pages import CONFIG_CHARACTERS_MAX, RunSearch
from catalog.run_status import StatusRequest
from catalog.statuses import Status

PROJECT = "my-ml-project"


@pytest.fixture
async def find(tenant, new_run):
    """Numbers of the runs found, of four that there are."""
    for n, (name, tags) in enumerate(
        [
            ("Big ÉCLAIR", ["a", "b"]),
            ("small", ["b c"]),
            ("mid_100%", ['q, "uote', "é"]),
            ("last", []),
        ]
    ):
        tenant.clock.now_ms += 1
        new = new_run(name=name, tags=tags, updated_at_ms=10 - n)
        await tenant.catalog.runs.create(tenant.id, new)
    await tenant.catalog.runs.create(tenant.id, new_run(project="elsewhere", name="small"))
    await tenant.catalog.runs.create(tenant.other, new_run(name="small"))
    await tenant.catalog.runs.update_status(tenant.id, 2, StatusRequest(Status.FAILED))

    async def find(**given):
        search = RunSearch(**{"project": PROJECT} | given)
        page = await tenant.catalog.runs.page(tenant.id, search)
        return [run.head.number for run in page.runs], page.total

    return find


async def test_runs_come_newest_first_a_page_at_a_time(find):
    assert await find() == ([4, 3, 2, 1], 4)
    assert await find(limit=2) == ([4, 3], 4)
    assert await find(limit=2, offset=3) == ([1], 4)
    assert await find(offset=100) == ([], 4)
    assert await find(project="nothing") == ([], 0)
    assert await find(project="elsewhere") == ([1], 1)


async def test_a_text_is_looked_for_in_names_and_display_ids(find):
    for text, numbers in (
        ("SMALL", [2]),
        ("big", [1]),
        ("l", [4, 2, 1]),
        ("mmp-3", [3]),
        ("MMP", [4, 3, 2, 1]),
        ("0%", [3]),
        ("d_1", [3]),
        ("%", [3]),
        ("' OR 1=1", []),
        ("\0", []),
    ):
        assert await find(text=text) == (numbers, len(numbers)), text


async def test_any_of_the_tags_will_do(find):
    for tags, numbers in (
        (["a"], [1]),
        (["b"], [1]),
        (["b c", "a"], [2, 1]),
        (['q, "uote'], [3]),
        (["uote"], []),
        (["é"], [3]),
        (["A"], []),
        (["%"], []),
    ):
        assert (await find(tags=tags))[0] == numbers, tags


async def test_statuses_and_all_conditions_together(find):
    assert await find(statuses=[Status.FAILED]) == ([2], 1)
    assert await find(statuses=[Status.FAILED, Status.RUNNING], text="l") == ([4, 2, 1], 3)
    assert await find(statuses=[Status.FAILED], tags=["a"]) == ([], 0)


async def test_runs_are_sorted_by_a_column_and_then_by_their_number(find):
    for sort, numbers in (
        ("createdAt", [1, 2, 3, 4]),
        ("+created_at", [1, 2, 3, 4]),
        ("-updated_at", [2, 1, 3, 4]),  # 2 has failed since
        ("name", [1, 4, 3, 2]),
        ("-status", [4, 3, 1, 2]),
    ):
        assert (await find(sort=sort))[0] == numbers, sort


async def test_another_sort_is_refused(tenant):
    for sort in ("", "-", "--name", "id", "config.lr", "name desc"):
        with pytest.raises(Invalid, match="sort must be one of created"):
            await tenant.catalog.runs.page(tenant.id, RunSearch(PROJECT, sort=sort))


async def test_a_page_holds_configurations_but_no_endless_ones(tenant, new_run):
    configs = ['{"a": 1}', '"' + "x" * CONFIG_CHARACTERS_MAX + '"', None]
    for config in configs:
        await tenant.catalog.runs.create(tenant.id, new_run(config=config, tags=["t"]))
    page = await tenant.catalog.runs.page(tenant.id, RunSearch(PROJECT, sort="createdAt"))
    assert [run.config for run in page.runs] == ['{"a": 1}', None, None]
    assert [run.tags for run in page.runs] == [["t"]] * 3
    assert page.organisation_slug == "acme"
