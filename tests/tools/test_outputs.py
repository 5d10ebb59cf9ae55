"""Outputs are committed in one form, however a run has cut them up."""

import copy
import itertools

from hypothesis import given
from hypothesis import strategies as st
from nbformat import NotebookNode

from tests.helpers.properties import sizes
from tools.outputs import normalised

TEXT = st.text("ab\n", max_size=3)
STREAM = st.fixed_dictionaries(
    {
        "output_type": st.just("stream"),
        "name": st.sampled_from(["stdout", "stderr"]),
        "text": TEXT,
    }
)
RESULT = st.fixed_dictionaries(
    {
        "output_type": st.sampled_from(["display_data", "execute_result"]),
        "data": st.fixed_dictionaries({"text/plain": TEXT}),
        "transient": st.just({"display_id": "1"}),
    }
)
ERROR = st.just({"output_type": "error", "ename": "E", "evalue": "", "traceback": []})
OUTPUTS = st.lists(
    st.one_of(STREAM, STREAM, RESULT, ERROR).map(NotebookNode), max_size=9
)


def pieces(outputs) -> list:
    """What a reader sees, in order: each letter of each stream, and the rest."""
    found = []
    for output in outputs:
        if output.output_type == "stream":
            found += [(output.name, letter) for letter in output.text]
        else:
            found.append((output.output_type, output.get("data"), output.get("ename")))
    return found


@given(outputs=OUTPUTS, count=sizes(1))
def test_streams_are_joined_each_with_itself_and_nothing_moves(outputs, count):
    before = copy.deepcopy(outputs)
    joined = normalised(outputs, count)
    assert outputs == before
    assert pieces(joined) == pieces(outputs)
    for first, second in itertools.pairwise(joined):
        assert first.get("name", 1) != second.get("name", 2)
    for output in joined:
        assert "transient" not in output
        if output.output_type == "execute_result":
            assert output.execution_count == count
    assert normalised(joined, count) == joined
