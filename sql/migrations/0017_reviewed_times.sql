-- What was taken away is told of no other time: not by the text of a receipt, and not by what was known then
--
-- The text of a receipt is cut whatever numbers the words in it have.
--
-- How long: milliseconds; no row is read.

-- ---- The texts of receipts

-- The lines that name one of the numbers, alone or in `#5 to #9:`, and what stands below them until another line begins with its own
-- number; the newest summary to its end, whatever its words name. Lines without a number say what was taken from several: the first
-- ones, and what runs.
CREATE OR REPLACE FUNCTION cut_out(told text, gone bigint[]) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    line text;
    kept text[] := '{}';
    is_cut boolean := false;
    is_summary boolean := false;
    is_opening boolean := strpos(told, E'\nA line is #number') > 0;
    place integer := 0;
BEGIN
    FOREACH line IN ARRAY string_to_array(told, E'\n') LOOP
        place := place + 1;
        is_summary := line <> '' AND NOT starts_with(line, '<') AND (is_summary OR line ~ '^Newest summary, #[0-9]');
        IF starts_with(line, 'A line is #number') THEN
            is_opening := false;
            is_cut := false;
        ELSIF is_opening THEN
            is_cut := place > 2;
        ELSIF line ~ '^(Another session is at work here now|This turn so far)' THEN
            is_cut := true;
        ELSIF EXISTS (SELECT FROM regexp_matches(line, '#([0-9]{1,18})', 'g') m WHERE m[1]::bigint = ANY(gone))
           OR EXISTS (SELECT FROM regexp_matches(line, '#([0-9]{1,18}) to #([0-9]{1,18})', 'g') m, unnest(gone) g
                       WHERE g BETWEEN m[1]::bigint AND m[2]::bigint) THEN
            is_cut := true;
        ELSIF is_summary THEN
            is_cut := is_cut AND NOT starts_with(line, 'Newest summary, #');
        ELSIF line = '' OR line ~ '^(<|#[0-9]|\d{4}-\d\d-\d\d|One is read whole|In .*, changed on)' THEN
            is_cut := false;
        END IF;
        IF NOT is_cut THEN
            kept := kept || line;
        ELSIF coalesce(kept[cardinality(kept)], '') <> '(erased)' THEN
            kept := kept || '(erased)'::text;
        END IF;
    END LOOP;
    RETURN array_to_string(kept, E'\n');
END $$;
