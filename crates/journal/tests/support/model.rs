//! The judge: what was acknowledged and what was tried, kept apart from the code under test.

use std::collections::BTreeMap;

use heddle_journal::replay::Body;
use heddle_journal::{Change, Journal};
use serde_json::Value;

/// Revision and document; None is a tombstone.
pub type Image = (u64, Option<Value>);
/// By type and id.
pub type World = BTreeMap<(String, String), Image>;

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub acknowledged: World,
    /// The one mutation that may or may not have happened.
    pub in_flight: Option<World>,
    /// Every image that an entity ever had.
    pub images: BTreeMap<(String, String), Vec<Image>>,
    /// Recovery may complete what is in flight, instead of leaving it as it was found.
    pub finishes: bool,
}

impl Model {
    pub fn after(&self, changes: &[Change]) -> World {
        let mut world = self.acknowledged.clone();
        for change in changes {
            let Some(id) = &change.item_id else { continue };
            let key = (change.item_type.clone(), id.clone());
            let rev = world.get(&key).map_or(0, |(rev, _)| *rev);
            world.insert(key, (rev + 1, change.document.clone()));
        }
        world
    }

    pub fn try_it(&mut self, changes: &[Change]) {
        let world = self.after(changes);
        for (key, image) in &world {
            let images = self.images.entry(key.clone()).or_default();
            if !images.contains(image) {
                images.push(image.clone());
            }
        }
        self.in_flight = Some(world);
    }

    /// The item goes and keeps its revision.
    pub fn try_erase(&mut self, item_type: &str, item_id: &str) {
        let mut world = self.acknowledged.clone();
        if let Some(image) = world.get_mut(&(item_type.to_owned(), item_id.to_owned())) {
            image.1 = None;
        }
        self.finishes = true;
        self.in_flight = Some(world);
    }

    pub fn acknowledge(&mut self) {
        if let Some(world) = self.in_flight.take() {
            self.acknowledged = world;
        }
    }
}

/// What the journal says, by a rebuild.
pub fn rebuilt(journal: &Journal, skip: usize) -> World {
    let rebuilt = journal.rebuild(skip).unwrap();
    let mut world = World::new();
    for (item_type, item_id, entity) in rebuilt.replay.entities() {
        let document = match &entity.body {
            Body::Inline(text) => Some(serde_json::from_str(text).unwrap()),
            Body::Gone => None,
            // One that is missing is shown as such, never as something else.
            blob @ Body::Blob { .. } => {
                let document = journal.document(item_type, blob);
                Some(document.unwrap_or_else(Value::String))
            }
        };
        let key = (item_type.to_owned(), item_id.to_owned());
        world.insert(key, (entity.head.rev, document));
    }
    world
}
