"""Logs of strace: the halves of an interrupted call are joined; truncated or mixed logs are refused."""

from __future__ import annotations

import pytest

from pytest_ckpt.recording.strace_log import read_log

END = "7 9.0 +++ exited with 0 +++"


def test_a_call_that_another_thread_interrupts_is_one() -> None:
    (call,) = read_log(
        [
            '7 1.0 write(3</d/a>, ""..., 10 <unfinished ...>',
            "7 2.0 <... write resumed>) = 10 <1.0>",
            END,
        ]
    )
    assert (call.began, call.ended, call.returned, call.descriptor()) == (1.0, 2.0, 10, (3, "/d/a"))


def test_names_are_read_as_they_are() -> None:
    lines = [r'7 1.0 openat(AT_FDCWD</d>, "a \"b\303\244", O_WRONLY|O_CREAT, 0666) = 3</d/a "b\303\244> <0.1>', END]
    (call,) = read_log(lines)
    assert call.path == '/d/a "bä'
    assert call.paths() == ['/d/a "bä']


def test_failed_calls_are_not_recorded() -> None:
    assert read_log(['7 1.0 unlink("/d/a") = -1 ENOENT (No such file or directory) <0.1>', END]) == []


@pytest.mark.parametrize(
    ("lines", "expected_text"),
    [
        (["7 1.0 write(3</d/a>, "], "line 1 is not a line of strace"),
        (["write(3, 4) = 5"], "line 1 is not a line of strace"),
        (['7 2.0 write(3</d/a>, "", 1) = 1', '7 1.0 write(3</d/a>, "", 1) = 1', END], "time goes back at line 2"),
        (['7 2.0 write(3</d/a>, "", 1) = 1'], "1 of 1 threads had not ended"),
        (["7 2.0 <... write resumed>) = 10 <1.0>", END], "ends a call that never began"),
    ],
)
def test_an_incomplete_log_is_refused(lines: list[str], expected_text: str) -> None:
    with pytest.raises(ValueError, match=expected_text):
        read_log(lines)


def test_relative_paths_of_rename_and_mkdir_become_absolute():
    """Relative paths of rename and mkdir become absolute paths.

    The log states the working directory of a process only in calls of openat, chdir and fchdir.
    """
    lines = [
        '7 1.0 openat(AT_FDCWD</srv/job>, "a.tmp", O_WRONLY|O_CREAT, 0666) = 3</srv/job/a.tmp>',
        '7 2.0 rename("a.tmp", "a") = 0',
        '7 3.0 chdir("below") = 0',
        "7 4.0 clone(child_stack=NULL, flags=SIGCHLD) = 8",
        '8 5.0 mkdir("step", 0777) = 0',
        "8 6.0 fchdir(4</mnt>) = 0",
        '8 7.0 rename("b.tmp", "/srv/b") = 0',
        "8 8.0 +++ exited with 0 +++",
        "7 9.0 +++ exited with 0 +++",
    ]
    calls = {(call.name, call.began): call.paths() for call in read_log(lines)}
    assert calls["rename", 2.0] == ["/srv/job/a.tmp", "/srv/job/a"]
    assert calls["mkdir", 5.0] == ["/srv/job/below/step"]
    assert calls["rename", 7.0] == ["/mnt/b.tmp", "/srv/b"]


def test_names_below_an_open_directory_are_below_that():
    """A name that is relative to an open directory becomes an absolute path.

    shutil.rmtree makes calls with such names.
    """
    (call,) = read_log(['7 1.0 unlinkat(4</d/e\\"f>, "a", 0) = 0', END])
    assert call.paths() == ['/d/e"f/a']
