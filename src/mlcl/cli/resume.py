"""``mlcl resume``: continue a run that was stopped."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import note, say
from mlcl.cli.run import follow
from mlcl.cli.update import finish
from mlcl.cli.verbs import verb_parser
from mlcl.runs.folder import is_finished, read_config, read_extends
from mlcl.runs.result import Result
from mlcl.runs.run import resume
from mlcl.runs.trackers import known_trackers, parse_trackers, tracked
from mlcl.taggers.gate import is_waiting
from mlcl.training.callbacks import Callback, CallbackList
from mlcl.training.portable import require_portable


def main(arguments: list[str]) -> int:
    """Resume: ``mlcl resume DIR [--quiet] [--track T,...]``."""
    parser = verb_parser(
        "resume",
        "Continue a run from its newest checkpoint; the result is that of a run in one go. A version that "
        "`mlcl update` began is then taken into use as there: behind the same gate, and if no other came into use "
        "meanwhile.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument("--quiet", action="store_true", help="print the folder's path only")
    parser.add_argument("--track", help="trackers to report to (default: those that the run began with)")
    given = parser.parse_args(arguments)
    if is_finished(given.folder):
        if is_waiting(given.folder):
            say(given.folder)
            return finish(given.folder, quiet=given.quiet)
        note(f"mlcl: {given.folder} is finished; there is nothing to resume")
        say(given.folder)
        return 0
    require_portable(read_config(given.folder).train)
    names = parse_trackers(",".join(known_trackers(given.folder)) if given.track is None else given.track)

    def start(callback: Callback) -> Result:
        with tracked(names, given.folder, read_config(given.folder)) as tracking:
            return resume(given.folder, callback=CallbackList(tracking, callback))

    extends = read_extends(given.folder)
    code = follow(start, given.folder, quiet=given.quiet)
    if code or extends is None:
        return code
    if not extends.gate_known:  # begun by an older mlcl
        note(f"mlcl: {given.folder} does not say which gate it must pass, so it is not taken into use")
        return 0
    return finish(given.folder, quiet=given.quiet)
