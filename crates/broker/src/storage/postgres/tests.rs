//! What only PostgreSQL can show.
