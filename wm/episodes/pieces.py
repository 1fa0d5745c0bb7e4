"""A batch in pieces that are always the same, whatever the number of processes that share them."""

from dataclasses import dataclass

from wm.errors import UsageProblem


@dataclass(frozen=True)
class Piece:
    """Piece `number` (from 0) of a batch in `of` pieces: consecutive rows, as many as in the others or one more."""

    number: int
    of: int

    def rows(self, count: int) -> tuple[int, int]:
        """The first row of this piece in a batch of so many, and the one after its last. Raises UsageProblem for a
        batch with fewer rows than pieces."""
        if count < self.of:
            raise UsageProblem(f"a batch has {count} rows and cannot be in {self.of} pieces; train on more episodes.")
        return self.number * count // self.of, (self.number + 1) * count // self.of


# The whole batch as its only piece, for the plain command.
WHOLE = Piece(0, 1)
