"""Which command lines are checks, by the parts of the command, and which of them are the same one."""

from __future__ import annotations

from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import Purpose
from tests.table import try_rows


@try_rows(
    ("line", "purpose", "label"),
    [
        ("mvn clean test", Purpose.TEST, "mvn test"),
        ("mvn -P ci -B clean verify", Purpose.TEST, "mvn verify"),
        ("mvn clean install", Purpose.TEST, "mvn install"),
        ("mvn clean package", Purpose.CHECK, "mvn package"),
        ("mvn -P test package", Purpose.CHECK, "mvn package"),
        ("./mvnw -q verify", Purpose.TEST, "mvnw verify"),
        ("mvn clean test -DskipTests", Purpose.LOOK, "mvn test"),
        ("mvn clean", Purpose.OTHER, "mvn clean"),
        ("mvn", Purpose.OTHER, "mvn"),
        ("gradle clean test", Purpose.TEST, "gradle test"),
        ("./gradlew check", Purpose.TEST, "gradlew check"),
        ("./gradlew :api:clean :api:test", Purpose.TEST, "gradlew test"),
        ("gradle build -x test", Purpose.CHECK, "gradle build"),
        ("gradle test -x test", Purpose.LOOK, "gradle test"),
        ("gradle tasks", Purpose.OTHER, "gradle tasks"),
        ("composer test", Purpose.TEST, "composer test"),
        ("composer run test", Purpose.TEST, "composer run test"),
        ("composer run-script --timeout=0 test", Purpose.TEST, "composer run-script test"),
        ("composer run lint", Purpose.CHECK, "composer run lint"),
        ("composer run-script --list", Purpose.OTHER, "composer run-script"),
        ("composer install", Purpose.ROUTINE, "composer install"),
        ("composer require monolog/monolog", Purpose.INSTALL, "composer require"),
        ("make clean test", Purpose.TEST, "make test"),
        ("make -j 4 test", Purpose.TEST, "make test"),
        ("make clean", Purpose.OTHER, "make clean"),
        ("bundle exec rake spec", Purpose.TEST, "rake spec"),
        ("ant test", Purpose.TEST, "ant test"),
        ("bin/rails test", Purpose.TEST, "rails test"),
        ("php artisan test", Purpose.TEST, "artisan test"),
    ],
)
def test_a_runner_is_read_by_the_parts_of_its_command(line: str, purpose: Purpose, label: str):
    main = read_command_line(line).main

    assert (main.purpose, main.label) == (purpose, label)


@try_rows(
    ("line", "other", "is_same"),
    [
        ("mvn clean test", "mvn test", True),
        ("mvn clean test", "mvn clean verify", False),
        ("gradle clean test", "gradle test", True),
        ("gradle clean test", "gradle clean test --tests PayTest", False),
        ("make clean test", "make test", True),
        ("composer test", "composer test -- --filter Pay", False),
    ],
)
def test_what_is_cleaned_before_makes_no_other_check(line: str, other: str, *, is_same: bool):
    first, second = read_command_line(line).main, read_command_line(other).main

    assert ((first.key, first.selectors) == (second.key, second.selectors)) is is_same
