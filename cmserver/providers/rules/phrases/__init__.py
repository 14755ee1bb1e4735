"""The fixed words of the rules, in the languages that there are; names, commands and quoted output stay as they are."""
