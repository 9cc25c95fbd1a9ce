//! Which tools an agent is offered: few by default, because each of them costs it on every turn.

use super::tools::{TOOLS, Tool};

#[derive(Debug, Clone)]
pub struct Profile(Vec<&'static Tool>);

impl Profile {
    /// `core`, `full`, or names with commas between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "core" => Ok(Self(TOOLS.iter().filter(|tool| tool.is_core).collect())),
            "full" => Ok(Self(TOOLS.iter().collect())),
            names => names
                .split(',')
                .map(find)
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }

    pub(super) fn tools(&self) -> &[&'static Tool] {
        &self.0
    }

    /// Only what was offered can be called (T-46).
    pub(super) fn find(&self, name: &str) -> Option<&'static Tool> {
        self.0.iter().find(|tool| tool.name == name).copied()
    }
}

fn find(name: &str) -> Result<&'static Tool, String> {
    let found = TOOLS.iter().find(|tool| tool.name == name.trim());
    found.ok_or_else(|| {
        let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
        format!("say core, full, or some of: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn listed(profile: &str) -> String {
        let profile = Profile::parse(profile).unwrap();
        let tools: Vec<_> = profile.tools().iter().map(|tool| tool.listed()).collect();
        serde_json::to_string(&serde_json::json!({"tools": tools})).unwrap()
    }

    #[test]
    fn p_26_the_tool_lists_keep_their_size() {
        let core = Profile::parse("core").unwrap();
        assert!(core.tools().len() <= 10);
        assert!(listed("core").len() <= 4_096, "{}", listed("core").len());
        assert!(listed("full").len() <= 16_384, "{}", listed("full").len());
    }

    #[test]
    fn t_45_what_an_agent_approved_is_what_it_gets() {
        // A change of a name, a description or an argument is a change of what people have approved:
        // it is made on purpose, and here too.
        let digest = Sha256::digest(listed("full"));
        insta::assert_snapshot!(heddle_core::fingerprint::hex(&digest));
    }

    #[test]
    fn a_list_of_names_is_a_profile_and_an_unknown_name_is_told() {
        let two = Profile::parse("recall, send_message").unwrap();
        assert_eq!(two.tools().len(), 2);
        assert!(two.find("remember").is_none());
        assert!(Profile::parse("recal").unwrap_err().contains("recall"));
        assert!(Profile::parse("").is_err());
    }
}
