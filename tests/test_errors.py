from wm import errors
from wm.errors import Stopped, WmError


def test_every_error_has_the_exit_code_of_its_kind() -> None:
    codes = {cls.__name__: cls.exit_code for cls in WmError.__subclasses__()}
    assert codes["UsageProblem"] == 64
    assert codes["BadData"] == 65
    assert codes["MissingInput"] == 66
    assert codes["MissingPackage"] == 69
    assert codes["DiskProblem"] == 74
    assert codes["Locked"] == 75
    assert codes["NotPermitted"] == 77
    assert codes["RecipeMismatch"] == 78
    assert Stopped(2).exit_code == 130
    assert Stopped(15).exit_code == 143
    assert all(cls.__doc__ for cls in vars(errors).values() if isinstance(cls, type))


def test_the_end_of_a_process_is_its_exit_code_or_the_name_of_its_signal() -> None:
    assert errors.end_of_process(3) == "exit code 3"
    assert errors.end_of_process(-9) == "signal SIGKILL"
    assert errors.end_of_process(-40) == "signal 40"  # of real time, without a name
