-- Two things about the models that texts are embedded with.
--
-- 1. A server that lacks the model of the embedder (Ollama) downloads it, and whoever asks how embedding goes sees how far that is. The
--    worker that waits for the download writes it here, because another process may be asked.
-- 2. What was put before a text is part of what its vector says. When a later cmserver puts other words before the texts of a model,
--    everything is embedded anew, as for another model. Until now only two of Ollama's models had words before their stored texts.
--
-- The previous release keeps working: it knows neither column. How long: a table of a few rows, so no time.

ALTER TABLE embedding_models
    ADD COLUMN pulled_percent smallint CHECK (pulled_percent BETWEEN 0 AND 100),
    ADD COLUMN document_prefix text NOT NULL DEFAULT '';

COMMENT ON COLUMN embedding_models.pulled_percent IS 'How much of the model its server has downloaded; NULL while it downloads nothing.';
COMMENT ON COLUMN embedding_models.document_prefix IS 'What is put before each text that is embedded with it.';

UPDATE embedding_models
   SET document_prefix = CASE split_part(regexp_replace(model, '^.*/', ''), ':', 1)
                         WHEN 'nomic-embed-text' THEN 'search_document: '
                         WHEN 'embeddinggemma' THEN 'title: none | text: '
                         ELSE '' END
 WHERE provider = 'ollama';
