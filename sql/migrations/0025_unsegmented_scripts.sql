-- Search inside the sentences of scripts that put no spaces between words: Chinese, Japanese, Thai, Lao, Khmer and Burmese; and inside
-- the words of Korean, whose endings are written on to them.
--
-- Why: the text search parser takes such a sentence for one word, so no part of it was found. search_words() now makes a lexeme of each
-- pair of neighbouring characters, for texts and queries alike; the words of other scripts between them are found, too, also where no
-- space parts them (`使用Redis缓存`). A query of one Chinese character or Korean syllable finds it inside a sentence. Texts without such
-- characters have the same lexemes as before, to the byte.
-- The previous release keeps working: it goes through the same function. Only its "quoted phrases" in these scripts no longer find what
-- is stored from now on.
-- How long: every text is looked through once, some 15 seconds per million observations and likewise of prompts. Only those with such
-- characters are written anew, about a millisecond each; they can be read meanwhile.

-- The characters that are written without spaces, as ranges of a regular expression; without digits and punctuation.
CREATE FUNCTION unsegmented_characters() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '\u0E01-\u0E3A\u0E40-\u0E4E'                                             -- Thai
    || '\u0E81-\u0EBD\u0EC0-\u0ECE\u0EDC-\u0EDF'                                -- Lao
    || '\u1000-\u103F\u1050-\u108F'                                             -- Burmese
    || '\u1780-\u17D3\u17D7\u17DC\u17DD'                                        -- Khmer
    || '\u3041-\u3096\u309D-\u309F\u30A1-\u30FA\u30FC-\u30FF\u31F0-\u31FF'      -- Hiragana, Katakana
    || '\u3005-\u3007\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF' -- Chinese characters
    || '\uAC00-\uD7A3';                                                         -- Korean syllables

-- Whether a text has such characters, or forms that become them or Latin letters (half-width, full-width, parts of a syllable).
CREATE FUNCTION is_unsegmented(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(said) > length(said) AND said ~ ('[\u1100-\u11FF\uFF00-\uFFEF' || unsegmented_characters() || ']');

-- The pairs of neighbouring characters in each run of such characters, at places with a gap between two runs, so that a phrase does not
-- reach from one into the next. A run of one character is a lexeme itself. Those of Chinese and Korean are lexemes without a place
-- inside longer runs: found when a query has one alone, and no part of the document's length. A tsvector has room for a megabyte and
-- 16,383 places: what is behind the first 16,000 characters in a field is not found by its pairs.
CREATE FUNCTION search_pairs(said text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT string_agg(CASE WHEN following IS NOT NULL THEN '''' || letter || following || ''':' || place
                           WHEN nth = 1 THEN '''' || letter || ''':' || place
                           ELSE '' END
                   || CASE WHEN letter ~ '[\u3400-\u9FFF\uAC00-\uD7A3\uF900-\uFAFF\U00020000-\U0003FFFF]' AND (nth > 1 OR following IS NOT NULL)
                           THEN ' ''' || letter || '''' ELSE '' END, ' ')::tsvector
      FROM (SELECT letter, nth, lead(letter) OVER (PARTITION BY run ORDER BY nth) AS following, row_number() OVER (ORDER BY run, nth) AS place
              FROM regexp_matches(said, '[' || unsegmented_characters() || ']+', 'g') WITH ORDINALITY AS runs (found, run)
             CROSS JOIN LATERAL string_to_table(found[1], NULL) WITH ORDINALITY AS letters (letter, nth)) AS letters
     WHERE place <= 16000);

-- As before, and the pairs behind the names.
CREATE OR REPLACE FUNCTION search_words(language text, said text, with_names boolean DEFAULT true) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    config regconfig := 'pg_catalog.' || language;
    names  text[];
    wholes tsvector;
    pairs  tsvector  := '';
BEGIN
    IF with_names AND is_unsegmented(said) THEN
        said := normalize(said, NFKC);
        pairs := coalesce(search_pairs(said), '');
        said := regexp_replace(said, '[' || unsegmented_characters() || ']+', ' ', 'g');
    END IF;
    IF with_names THEN
        names := search_names(said);
    END IF;
    IF names IS NULL THEN
        RETURN to_tsvector(config, said) || pairs;
    END IF;
    SELECT string_agg('''' || replace(replace(whole, '\', '\\'), '''', '''''') || ''':' || place, ' ')::tsvector
      INTO wholes
      FROM (SELECT lower(part) AS whole, row_number() OVER () AS place
              FROM unnest(names) AS name
             CROSS JOIN LATERAL (
                   SELECT name AS part
                    UNION
                   SELECT regexp_split_to_table(name, '[/\\:#@]+')
                    UNION
                   SELECT regexp_split_to_table(name, '[./\\:#@]+')
                    UNION
                   SELECT substr(name, 2) WHERE name ~* '^v[0-9]') AS parts
             WHERE part = name OR part ~ '[._$]|[a-z0-9][A-Z]') AS found
     WHERE whole <> '' AND place <= 16000;
    RETURN to_tsvector(config, said) || wholes
        || to_tsvector(config, regexp_replace(translate(array_to_string(names, ' '), './:_#@\$-', '         '),
                                              '([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])', '\1\3 \2\4', 'g'))
        || pairs;
END $$;

-- All that a text says, as a condition: the words of other scripts, in a row where it is a phrase, and each run of such characters.
CREATE FUNCTION search_mixed(language text, said text, is_phrase boolean) RETURNS tsquery LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    config   regconfig := 'pg_catalog.' || language;
    usual    text      := normalize(said, NFKC);
    words    text      := regexp_replace(usual, '[' || unsegmented_characters() || ']+', ' ', 'g');
    wanted   tsquery   := CASE WHEN is_phrase THEN phraseto_tsquery(config, words) ELSE plainto_tsquery(config, words) END;
    run      text;
BEGIN
    FOR run IN SELECT matches[1] FROM regexp_matches(usual, '[' || unsegmented_characters() || ']+', 'g') AS matches LOOP
        wanted := wanted && (SELECT string_agg('''' || letter || coalesce(following, '') || '''', ' <-> ' ORDER BY nth)::tsquery
                               FROM (SELECT letter, nth, lead(letter) OVER (ORDER BY nth) AS following
                                       FROM string_to_table(run, NULL) WITH ORDINALITY AS letters (letter, nth)) AS pairs
                              WHERE following IS NOT NULL OR nth = 1);
    END LOOP;
    RETURN wanted;
END $$;

CREATE FUNCTION search_marked_mixed(language text, said text) RETURNS tsquery LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    wanted tsquery := '';
    phrase tsquery;
    mark   text[];
BEGIN
    FOR mark IN SELECT matches FROM regexp_matches(said, '(-?)"([^"]+)"', 'g') AS matches LOOP
        phrase := search_mixed(language, mark[2], true);
        IF numnode(phrase) > 0 THEN
            wanted := wanted && CASE WHEN mark[1] = '-' THEN !!phrase ELSE phrase END;
        END IF;
    END LOOP;
    RETURN wanted;
END $$;

-- The conditions of a query: all its words; or what it marks as "phrases" and -"exclusions". Without such characters that is a function
-- of PostgreSQL, and the planner sees no other.
CREATE FUNCTION search_all(language text, said text) RETURNS tsquery LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN is_unsegmented(said) THEN search_mixed(language, said, false)
            ELSE plainto_tsquery(('pg_catalog.' || language)::regconfig, said) END;
CREATE FUNCTION search_marked(language text, said text) RETURNS tsquery LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN is_unsegmented(said) THEN search_marked_mixed(language, said)
            ELSE websearch_to_tsquery(('pg_catalog.' || language)::regconfig, said) END;

UPDATE observations SET search_language = search_language
 WHERE is_unsegmented(concat_ws(' ', title, subtitle, narrative, array_to_string(facts, ' '), array_to_string(concepts, ' '),
                                array_to_string(files_read, ' '), array_to_string(files_modified, ' '), content));
UPDATE session_prompts SET search_language = search_language WHERE is_unsegmented(text);
