"""Lists the presidents of the United States, their terms and parties."""

from pretrain.runtime.errors import UserError

NONE = ""
DEMOCRATIC, REPUBLICAN = "Democratic", "Republican"
# Johnson was a Democrat who was elected on the ticket of the National Union.
FEDERALIST, WHIG, UNION = "Federalist", "Whig", "National Union"
JEFFERSONIAN = "Democratic-Republican"
PRESIDENTS: tuple[tuple[str, int, int, str], ...] = (  # surname, from, to, party when elected
    ("Washington", 1789, 1797, NONE),
    ("Adams", 1797, 1801, FEDERALIST),
    ("Jefferson", 1801, 1809, JEFFERSONIAN),
    ("Madison", 1809, 1817, JEFFERSONIAN),
    ("Monroe", 1817, 1825, JEFFERSONIAN),
    ("Adams", 1825, 1829, JEFFERSONIAN),
    ("Jackson", 1829, 1837, DEMOCRATIC),
    ("Van Buren", 1837, 1841, DEMOCRATIC),
    ("Harrison", 1841, 1841, WHIG),
    ("Tyler", 1841, 1845, WHIG),
    ("Polk", 1845, 1849, DEMOCRATIC),
    ("Taylor", 1849, 1850, WHIG),
    ("Fillmore", 1850, 1853, WHIG),
    ("Pierce", 1853, 1857, DEMOCRATIC),
    ("Buchanan", 1857, 1861, DEMOCRATIC),
    ("Lincoln", 1861, 1865, REPUBLICAN),
    ("Johnson", 1865, 1869, UNION),
    ("Grant", 1869, 1877, REPUBLICAN),
    ("Hayes", 1877, 1881, REPUBLICAN),
    ("Garfield", 1881, 1881, REPUBLICAN),
    ("Arthur", 1881, 1885, REPUBLICAN),
    ("Cleveland", 1885, 1889, DEMOCRATIC),
    ("Harrison", 1889, 1893, REPUBLICAN),
    ("Cleveland", 1893, 1897, DEMOCRATIC),
    ("McKinley", 1897, 1901, REPUBLICAN),
    ("Roosevelt", 1901, 1909, REPUBLICAN),
    ("Taft", 1909, 1913, REPUBLICAN),
    ("Wilson", 1913, 1921, DEMOCRATIC),
    ("Harding", 1921, 1923, REPUBLICAN),
    ("Coolidge", 1923, 1929, REPUBLICAN),
    ("Hoover", 1929, 1933, REPUBLICAN),
    ("Roosevelt", 1933, 1945, DEMOCRATIC),
    ("Truman", 1945, 1953, DEMOCRATIC),
    ("Eisenhower", 1953, 1961, REPUBLICAN),
    ("Kennedy", 1961, 1963, DEMOCRATIC),
    ("Johnson", 1963, 1969, DEMOCRATIC),
    ("Nixon", 1969, 1974, REPUBLICAN),
    ("Ford", 1974, 1977, REPUBLICAN),
    ("Carter", 1977, 1981, DEMOCRATIC),
    ("Reagan", 1981, 1989, REPUBLICAN),
    ("Bush", 1989, 1993, REPUBLICAN),
    ("Clinton", 1993, 2001, DEMOCRATIC),
    ("Bush", 2001, 2009, REPUBLICAN),
    ("Obama", 2009, 2017, DEMOCRATIC),
    ("Trump", 2017, 2021, REPUBLICAN),
    ("Biden", 2021, 2025, DEMOCRATIC),
    ("Trump", 2025, 2029, REPUBLICAN),
)


def party(surname: str, year: int) -> str:
    """Returns the party of the president of that name in that year; "" for Washington.

    Raises:
        UserError: there was none of that name.
    """
    # Blanks are ignored: "VanBuren" is Van Buren.
    # In the year of an inauguration both presidents give messages: the name decides.
    for name, begins, ends, its_party in PRESIDENTS:
        if name.replace(" ", "") == surname.replace(" ", "") and begins <= year <= ends:
            return its_party
    raise UserError(f"{surname}, {year}: there was no such president")
