//! Which meshes of a store a start would serve: those that the settings name, and those that were made here, which the
//! broker of this home hosts. What neither is would be missed by nobody.

use heddle_core::names::MeshName;
use heddle_store::MeshCheck;
use heddle_wire::ipc::Finding;

use super::look::{fine, wrong};
use crate::config::{Config, HOME_MESH};

/// What brings a mesh back that was hosted elsewhere.
const NAME_NEXT: &str = "Put its [[mesh]] back into config.toml (a backup has the file) and restart with `heddle down` and \
    `heddle up`; a mesh that you were invited to comes back with `heddle mesh join LINK`. If it was left on purpose, write \
    left = [\"NAME\"] at the top of config.toml.";
/// And one that only a broker of this home's own can host.
const HOST_NEXT: &str = "Restart with `heddle down` and `heddle up`, without a url under [broker] in config.toml; if it was left \
    on purpose, write left = [\"NAME\"] at the top of config.toml.";

/// What keeps a mesh of the store from being served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// It is hosted elsewhere, and no setting says where.
    Unnamed,
    /// It was made here, and this home runs no broker of its own.
    Unhosted,
}

impl Unserved {
    pub(crate) fn of(is_hosted_here: bool) -> Self {
        if is_hosted_here {
            Self::Unhosted
        } else {
            Self::Unnamed
        }
    }

    pub(crate) fn says(self, names: &str) -> String {
        let why = match self {
            Self::Unnamed => "config.toml does not name it",
            Self::Unhosted => "it was made here and this home runs no broker of its own",
        };
        format!(
            "the data of mesh {names} is in the store, but {why}: it is not served, synced, shown or exported"
        )
    }

    pub(crate) fn next(self) -> &'static str {
        match self {
            Self::Unnamed => NAME_NEXT,
            Self::Unhosted => HOST_NEXT,
        }
    }
}

/// Of files that no daemon has open, or that one has: it says for itself what it does not serve.
pub(super) fn finding(config: &Config, meshes: &[MeshCheck]) -> Finding {
    let hosts = config.broker.url.is_none();
    let is_served = |mesh: &MeshCheck| {
        let names = config.mesh.iter().map(|mesh| &mesh.name);
        let mut named = names.chain(&config.left);
        mesh.name == HOME_MESH
            || (mesh.is_hosted_here && hosts)
            || named.any(|name| name.as_str() == mesh.name)
    };
    // What is no name is told of as what it is.
    let meshes = meshes
        .iter()
        .filter(|mesh| MeshName::parse(&mesh.name).is_ok());
    let unserved: Vec<&MeshCheck> = meshes.filter(|mesh| !is_served(mesh)).collect();
    let (mut says, mut next) = (Vec::new(), Vec::new());
    for is_hosted_here in [false, true] {
        let of_kind = unserved
            .iter()
            .filter(|mesh| mesh.is_hosted_here == is_hosted_here);
        let names: Vec<&str> = of_kind.map(|mesh| mesh.name.as_str()).collect();
        if !names.is_empty() {
            let why = Unserved::of(is_hosted_here);
            says.push(why.says(&names.join(", ")));
            next.push(why.next());
        }
    }
    if says.is_empty() {
        return fine("meshes", "every mesh of the store is served");
    }
    wrong("meshes", says.join("; "), next.join(" "))
}
