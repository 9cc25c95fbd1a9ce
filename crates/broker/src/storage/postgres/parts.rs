//! Parts of files on their way from a member at one broker to a member at another.

use super::super::error::StorageError;
use super::super::parts::{PartAsk, Parts};
use super::PostgresStorage;
use super::columns::{integer, member_key, mesh_key};
use super::error::JobError;
use super::sql::{execute, query_opt};

/// What nobody came for goes with the next one: the home that wanted it has asked again long since.
const LEAVE: &str = "
WITH forgotten AS (
    DELETE FROM blob_part WHERE mesh_id = $1 AND left_at < now() - interval '2 minutes')
INSERT INTO blob_part (mesh_id, member_id, generation, ask, data) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING";

const TAKE: &str = "
DELETE FROM blob_part WHERE mesh_id = $1 AND member_id = $2 AND generation = $3 AND ask = $4
RETURNING data";

impl Parts for PostgresStorage {
    async fn leave_part(&self, ask: PartAsk, data: Vec<u8>) -> Result<(), StorageError> {
        let client = self.reader().await?;
        let (mesh, member) = (mesh_key(ask.mesh), member_key(ask.asker));
        let (generation, number) = (integer(ask.generation), integer(ask.number));
        let row = [
            &mesh as _,
            &member as _,
            &generation as _,
            &number as _,
            &data as _,
        ];
        execute(&client, LEAVE, &row).await?;
        Ok(())
    }

    async fn take_part(&self, ask: PartAsk) -> Result<Option<Vec<u8>>, StorageError> {
        let client = self.reader().await?;
        let (mesh, member) = (mesh_key(ask.mesh), member_key(ask.asker));
        let (generation, number) = (integer(ask.generation), integer(ask.number));
        let key = [&mesh as _, &member as _, &generation as _, &number as _];
        let row = query_opt(&client, TAKE, &key).await?;
        let data = row.map(|row| row.try_get(0)).transpose();
        Ok(data.map_err(JobError::from)?)
    }
}
