-- Which providers are left alone at the moment, why, and until when.
SELECT provider, reason, message, paused_at, until_at, until_at - now() AS time_left, times
  FROM provider_pauses
 ORDER BY provider;
