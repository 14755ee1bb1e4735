-- Makes the roles and the database for cmserver. Once, by a superuser, or by a role that may create roles and databases, in a cluster of
-- PostgreSQL 15 or newer:
--
--     DATABASE_PASSWORD=... psql -U postgres -f sql/setup/database.sql
--
-- Why not simply a superuser: cmserver needs none of its powers, and nothing binds one, neither row-level security, which keeps teams
-- apart, nor the limits of this database. So cmserver owns its tables as a plain role, and answers requests as another one, which
-- owns nothing: it logs in as cmserver_request, a member of cmserver_tenant, who has the rights that requests need. One password is
-- enough for both logins, since one process holds both. The program makes the tables by itself.
\set ON_ERROR_STOP on
\getenv password DATABASE_PASSWORD

CREATE ROLE cmserver LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'password';
CREATE ROLE cmserver_tenant NOLOGIN;
GRANT cmserver_tenant TO cmserver;
CREATE ROLE cmserver_request LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'password';
GRANT cmserver_tenant TO cmserver_request;
-- Only a superuser gives a database to a role without being its member.
SELECT 'GRANT cmserver TO CURRENT_USER' FROM pg_roles WHERE rolname = current_user AND NOT rolsuper \gexec
CREATE DATABASE cmserver OWNER cmserver ENCODING 'UTF8' TEMPLATE template0;  -- a cluster may have been made with another one

\connect cmserver
-- Only a superuser may do this, and whom a provider allows it; without pgvector everything works but vectors.
SELECT 'CREATE EXTENSION vector' FROM pg_available_extensions WHERE name = 'vector' \gexec
