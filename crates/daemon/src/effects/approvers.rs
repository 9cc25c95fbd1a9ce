//! Who may approve an effect, as whoever asks would name them; and what the policy says now that it did not say when
//! something was approved.

use heddle_registrar::binding::Effect;
use heddle_registrar::facts::Facts;
use heddle_registrar::life::Stage;
use heddle_registrar::policy::{Approval, Ruled};
use heddle_registrar::registrar::Caller;
use heddle_registrar::storage::Storage;
use heddle_wire::broker::EffectAnswer;

use super::Effects;
use super::desk::Desk;
use super::named::called_back;
use crate::mesh::MeshState;

/// Mailboxes of the asker's own home as they are, everybody else with their member. `person` is the member whose home
/// decides, and nobody at a broker without one: there the `deciders` are, as they are called everywhere.
fn named(ruled: &Ruled, (person, deciders): (&str, &[String]), asker: &str) -> Vec<String> {
    let is_guest = asker.starts_with('@');
    let at_home = |mailbox: &str| match (is_guest, mailbox == person) {
        (false, _) => mailbox.to_owned(),
        (true, true) => format!("@{person}"),
        (true, false) => format!("@{person}/{mailbox}"),
    };
    let one = |approver: &String| {
        let own = approver.strip_prefix('@').map(|name| name.split_once('/'));
        match own {
            None if person.is_empty() => approver.clone(),
            None => at_home(approver),
            Some(None) if approver[1..] == *person => at_home(person),
            Some(Some((member, mailbox))) if member == person => at_home(mailbox),
            Some(_) => approver.clone(),
        }
    };
    match (ruled.approval, ruled.approvers()) {
        // Nobody can say yes. Where nobody is asked beforehand, a word is still theirs once something went wrong.
        (Approval::Never, _) => Vec::new(),
        (_, []) if person.is_empty() => deciders.to_vec(),
        (_, []) => vec![at_home(person)],
        (_, approvers) => approvers.iter().map(one).collect(),
    }
}

impl<S: Storage> Desk<S> {
    /// At a broker without a home, where the policy names nobody, those who may decide in the mesh.
    pub(super) fn approvers(&self, by: &Caller, effect: &Effect) -> Vec<String> {
        let ruled = self.registrar.ruled(effect);
        named(&ruled, (&self.person, &by.deciders), &by.agent)
    }

    /// The effect that is shown for a key: what was registered, or what its foremost request asks for.
    pub(super) fn shown<'a>(&self, facts: &'a Facts) -> Option<&'a Effect> {
        let consumed = facts.consumed.as_ref().map(|row| &row.effect);
        let now = self.registrar.now();
        consumed.or_else(|| facts.foremost(now).map(|it| &it.row.effect))
    }

    /// From now on it is the policy of now, also for who only looks. What is wrong with it, where it cannot be read.
    pub(super) fn policy_of_now(&self) -> Option<String> {
        match self.policy.read() {
            Ok(policy) => {
                self.registrar.set_policy(policy);
                None
            }
            Err(_) => self.policy.trouble(),
        }
    }

    /// Why nothing of this effect would begin now, whatever was approved before. A policy in trouble allows nothing.
    pub(super) fn blocked(&self, trouble: Option<&str>, facts: &Facts) -> Option<String> {
        let effect = self.shown(facts)?;
        let what = match facts.stage() {
            Stage::Issued => "nothing is approved or registered any more, whatever was before",
            Stage::Registered => "nothing is begun any more, also what is registered",
            _ => return None,
        };
        if let Some(trouble) = trouble {
            return Some(trouble.to_owned());
        }
        let is_forbidden = self.registrar.ruled(effect).approval == Approval::Never;
        is_forbidden.then(|| format!("effects.toml says never now: {what}"))
    }
}

impl Effects {
    /// Who may approve, as they are called here: the person and the mailboxes of this home without their member.
    pub(super) fn as_called_here(&self, mesh: &MeshState, answer: &mut EffectAnswer) {
        let approvers = match answer {
            EffectAnswer::Requested(asked) => &mut asked.approvers,
            EffectAnswer::View(view) => &mut view.approvers,
            _ => return,
        };
        let member = mesh.mesh.member_name.as_str();
        for name in approvers {
            *name = called_here(name, (member, self.speaks.person.as_str()));
        }
    }
}

fn called_here(name: &str, (member, person): (&str, &str)) -> String {
    let mailbox = match name.strip_prefix('@').map(|rest| rest.split_once('/')) {
        Some(None) => &name[1..],
        Some(Some((of, mailbox))) if of == member => mailbox,
        Some(_) => return name.to_owned(),
        None => name,
    };
    // `@bob`, who is another member.
    if mailbox != member && name.starts_with('@') && !name.contains('/') {
        return name.to_owned();
    }
    called_back(mailbox, (member, person)).to_owned()
}

#[cfg(test)]
mod tests {
    use heddle_registrar::policy::Policy;

    use super::*;

    fn names(policy: &str, person: &str, asker: &str) -> String {
        let policy = Policy::parse(policy).unwrap();
        let deciders = ["@owner".to_owned()];
        let ruled = policy.ruled("deploy", "prod");
        named(&ruled, (person, &deciders), asker).join(" ")
    }

    #[test]
    fn who_may_approve_is_named_as_the_asker_would() {
        let rule = r#"[[rule]]
operation = "deploy"
approval = "person"
approvers = ["carol", "@bob", "@alice/ops", "@alice"]"#;
        assert_eq!(names("", "alice", "planner"), "alice");
        assert_eq!(names("", "alice", "@bob/planner"), "@alice");
        assert_eq!(names("", "", "@bob/planner"), "@owner");
        assert_eq!(names(rule, "alice", "planner"), "carol @bob ops alice");
        assert_eq!(
            names(rule, "alice", "@bob/planner"),
            "@alice/carol @bob @alice/ops @alice"
        );
        let never = "[[rule]]\noperation = \"*\"\napproval = \"never\"";
        assert_eq!(names(never, "alice", "planner"), "");
        let auto = never.replace("never", "auto");
        assert_eq!(names(&auto, "alice", "@bob/planner"), "@alice");
    }

    #[test]
    fn the_person_of_this_home_is_called_by_its_mailbox() {
        let here = |name: &str| called_here(name, ("bob", "tester"));
        for (name, expected) in [
            ("@bob", "tester"),
            ("@bob/bob", "tester"),
            ("bob", "tester"),
            ("@bob/ops", "ops"),
            ("@bob/bob.agent", "bob"),
            ("carol", "carol"),
            ("@alice", "@alice"),
            ("@alice/ops", "@alice/ops"),
        ] {
            assert_eq!(here(name), expected, "{name}");
        }
    }
}
