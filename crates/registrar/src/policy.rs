//! Which operations need whose approval: `effects.toml`, as it stands when something is asked.
//!
//! A policy is about consent, not about secrecy: whoever can open the home's socket can also claim to be
//! its person. It keeps honest agents from acting alone.

use heddle_core::names::{AgentName, MemberName};
use serde::Deserialize;

use crate::binding::{compared, is_hidden};
use crate::look_alike;

const WINDOW_MINUTES_DEFAULT: u32 = 15;
const WINDOW_MINUTES_MAX: u32 = 7 * 24 * 60;
const REQUEST_TTL_HOURS_DEFAULT: u32 = 7 * 24;
const HORIZON_DAYS_DEFAULT: u32 = 3650;
/// Beyond the longest request: an old request must always find the key still blocked.
const HORIZON_DAYS_MIN: u32 = 365;
const RULES_MAX: usize = 256;
/// Who has approved where nobody is asked. No mailbox can be called so.
pub const AUTO: &str = "policy (auto)";

#[derive(Debug, thiserror::Error)]
#[error("effects.toml: {0}")]
pub struct PolicyError(String);

impl PolicyError {
    /// Without the name of the file.
    pub fn reason(&self) -> String {
        self.0.clone()
    }
}

/// Who has to say yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Nobody is asked.
    Auto,
    /// A person. One who runs it without having asked has thereby said yes.
    Person,
    /// A person, in words, every time: also for what that person runs.
    Always,
    /// Nobody can: the operation is refused, also where it was approved or registered before.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// An operation, or `*`.
    pub operation: String,
    /// A target, a beginning of one followed by `*`, or `*`.
    #[serde(default = "anything")]
    pub target: String,
    pub approval: Approval,
    /// Mailboxes that may approve; the person of the home where none is named. `@bob` is the person of
    /// another home of the mesh, `@bob/planner` a mailbox there; the home's own can be named so as well.
    #[serde(default)]
    pub approvers: Option<Vec<String>>,
    /// How long a nonce is good, and at most.
    pub window_minutes: Option<u32>,
}

impl Rule {
    /// As they are compared, once: a rule is asked far more often than it is read.
    fn folded(mut self) -> Self {
        self.operation = compared(&self.operation);
        self.target = compared(&self.target);
        self
    }

    fn trouble(&self) -> Option<String> {
        for pattern in [&self.operation, &self.target] {
            if pattern.chars().any(|c| c.is_control() || is_hidden(c)) {
                return Some(format!(
                    "{pattern:?} holds a character that cannot be seen; no effect is called so"
                ));
            }
            if let Some(other) = look_alike::found(pattern) {
                return Some(format!(
                    "{pattern:?} holds U+{:04X}, which reads as another character; no effect is called so",
                    u32::from(other)
                ));
            }
            // Taken for itself, it would fit nothing, and a rule further down would speak instead.
            let beginning = pattern.strip_suffix('*').unwrap_or(pattern);
            if pattern.is_empty() || beginning.contains('*') {
                return Some(format!(
                    "{pattern:?} fits no effect; write a whole name, a beginning followed by one *, or * alone"
                ));
            }
        }
        let Some(approvers) = &self.approvers else {
            return None;
        };
        if approvers.is_empty() {
            return Some(format!(
                "approvers of {:?} names nobody; leave the line out and the person of the home approves, or say approval = \"never\"",
                self.operation
            ));
        }
        let bad = approvers.iter().find(|approver| !is_approver(approver))?;
        let shapes =
            "name a mailbox of this home (carol), a member (@bob) or its mailbox (@bob/ops)";
        Some(format!("approvers: {bad:?} is nobody; {shapes}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    #[serde(default = "request_ttl")]
    pub request_ttl_hours: u32,
    #[serde(default = "horizon")]
    pub horizon_days: u32,
    /// The first that fits counts.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

fn anything() -> String {
    "*".to_owned()
}

fn request_ttl() -> u32 {
    REQUEST_TTL_HOURS_DEFAULT
}

fn horizon() -> u32 {
    HORIZON_DAYS_DEFAULT
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            request_ttl_hours: REQUEST_TTL_HOURS_DEFAULT,
            horizon_days: HORIZON_DAYS_DEFAULT,
            rules: Vec::new(),
        }
    }
}

/// The rule as it applies to one effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled {
    pub approval: Approval,
    approvers: Vec<String>,
    pub window_minutes: u32,
    /// What a person may not go beyond.
    pub window_minutes_max: u32,
}

impl Ruled {
    /// Who is named; nobody where the person of the home decides.
    pub fn approvers(&self) -> &[String] {
        &self.approvers
    }

    /// Whether this mailbox may approve; `person` is the home's own.
    pub fn may_approve(&self, agent: &str, person: &str) -> bool {
        if self.approval == Approval::Never {
            return false;
        }
        if self.approvers.is_empty() {
            return agent == person;
        }
        self.approvers.iter().any(|approver| {
            let Some(name) = approver.strip_prefix('@') else {
                return approver == agent;
            };
            let (member, mailbox) = name.split_once('/').unwrap_or((name, name));
            // Whoever comes from another home bears its member's name; our own mailboxes do not.
            let is_own = member == person && !agent.starts_with('@');
            is_own && mailbox == agent || agent == format!("@{member}/{mailbox}")
        })
    }
}

/// `carol`, `@bob` or `@bob/planner`: anything else would be a rule that nobody can follow.
fn is_approver(text: &str) -> bool {
    match text.strip_prefix('@').map(|name| name.split_once('/')) {
        None => AgentName::parse(text).is_ok(),
        Some(None) => MemberName::parse(&text[1..]).is_ok(),
        Some(Some((member, mailbox))) => {
            MemberName::parse(member).is_ok() && AgentName::parse(mailbox).is_ok()
        }
    }
}

impl Policy {
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let mut policy: Self =
            toml::from_str(text).map_err(|error| PolicyError(error.to_string()))?;
        if policy.rules.len() > RULES_MAX {
            return Err(PolicyError(format!("more than {RULES_MAX} rules")));
        }
        if policy.horizon_days < HORIZON_DAYS_MIN {
            let least = format!("horizon_days must be at least {HORIZON_DAYS_MIN}");
            return Err(PolicyError(least));
        }
        if policy.request_ttl_hours == 0 || policy.request_ttl_hours > policy.horizon_days * 24 {
            let range = "request_ttl_hours must be at least 1 and end before the horizon";
            return Err(PolicyError(range.to_owned()));
        }
        if let Some(trouble) = policy.rules.iter().find_map(Rule::trouble) {
            return Err(PolicyError(trouble));
        }
        let windows = policy.rules.iter().filter_map(|rule| rule.window_minutes);
        for minutes in windows {
            if minutes == 0 || minutes > WINDOW_MINUTES_MAX {
                let range = format!("window_minutes must be 1 to {WINDOW_MINUTES_MAX}");
                return Err(PolicyError(range));
            }
        }
        policy.rules = policy.rules.into_iter().map(Rule::folded).collect();
        Ok(policy)
    }

    /// What applies to this operation on this target. Where nothing is said, a person is asked.
    pub fn ruled(&self, operation: &str, target: &str) -> Ruled {
        // IMPORTANT: as a person reads them. `Pay` must not escape a rule for `pay`.
        let (operation, target) = (&compared(operation), &compared(target));
        let fits = |rule: &Rule, pattern: &str, text: &str| match pattern.strip_suffix('*') {
            // What nobody is asked about is spelled by the rule: a * must not wave through what it never thought of.
            Some(beginning) => text
                .strip_prefix(beginning)
                .is_some_and(|rest| rule.approval != Approval::Auto || rest.is_ascii()),
            None => pattern == text,
        };
        let rule = self.rules.iter().find(|rule| {
            fits(rule, &rule.operation, operation) && fits(rule, &rule.target, target)
        });
        match rule {
            None => Ruled {
                approval: Approval::Person,
                approvers: Vec::new(),
                window_minutes: WINDOW_MINUTES_DEFAULT,
                window_minutes_max: WINDOW_MINUTES_MAX,
            },
            Some(rule) => Ruled {
                approval: rule.approval,
                approvers: rule.approvers.clone().unwrap_or_default(),
                window_minutes: rule.window_minutes.unwrap_or(WINDOW_MINUTES_DEFAULT),
                window_minutes_max: rule.window_minutes.unwrap_or(WINDOW_MINUTES_MAX),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        request_ttl_hours = 24
        [[rule]]
        operation = "deploy"
        target = "staging*"
        approval = "auto"
        [[rule]]
        operation = "pay"
        approval = "never"
        [[rule]]
        operation = "*"
        approval = "always"
        approvers = ["carol"]
        window_minutes = 5
    "#;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let policy = Policy::parse(FILE).unwrap();
        assert_eq!(
            policy.ruled("deploy", "staging-eu").approval,
            Approval::Auto
        );
        let rest = policy.ruled("deploy", "prod");
        assert_eq!((rest.approval, rest.window_minutes), (Approval::Always, 5));
        assert!(rest.may_approve("carol", "alice") && !rest.may_approve("alice", "alice"));
        let never = policy.ruled("pay", "anybody");
        assert!(!never.may_approve("carol", "alice") && !never.may_approve("alice", "alice"));
    }

    #[test]
    fn a_rule_is_not_escaped_by_another_way_to_write_its_name() {
        let file = "[[rule]]\noperation = \"Pay\"\ntarget = \"Prod*\"\napproval = \"never\"\n[[rule]]\noperation = \"*\"\napproval = \"auto\"";
        let policy = Policy::parse(file).unwrap();
        for (operation, target) in [
            ("pay", "prod"),
            ("PAY", "PROD-eu"),
            ("\u{ff50}ay", "pro\u{ff44}"),
        ] {
            let ruled = policy.ruled(operation, target);
            assert_eq!(ruled.approval, Approval::Never, "{operation} {target}");
        }
        assert_eq!(policy.ruled("pays", "prod").approval, Approval::Auto);
    }

    #[test]
    fn a_star_approves_nothing_by_itself_that_it_does_not_spell() {
        let file = "[[rule]]\noperation = \"deploy\"\ntarget = \"caf\u{e9}*\"\napproval = \"auto\"\n[[rule]]\noperation = \"*\"\napproval = \"auto\"\n";
        let policy = Policy::parse(file).unwrap();
        for (operation, target, approval) in [
            ("deploy", "staging", Approval::Auto),
            ("deploy", "CAF\u{c9}-1", Approval::Auto),
            ("deploy", "caf\u{e9}-\u{fc}", Approval::Person),
            ("d\u{e9}ploy", "staging", Approval::Person),
            ("pay", "\u{43f}\u{440}\u{43e}\u{434}", Approval::Person),
            // Of before such a name was refused.
            ("d\u{435}ploy", "staging", Approval::Person),
        ] {
            let ruled = policy.ruled(operation, target);
            assert_eq!(ruled.approval, approval, "{operation} {target}");
        }
        // What says no, says so to everything.
        let file = "[[rule]]\noperation = \"*\"\napproval = \"never\"";
        let policy = Policy::parse(file).unwrap();
        let ruled = policy.ruled("\u{43f}\u{440}\u{43e}\u{434}", "d\u{435}");
        assert_eq!(ruled.approval, Approval::Never);
    }

    #[test]
    fn without_a_file_a_person_is_asked() {
        let ruled = Policy::default().ruled("deploy", "prod");
        assert_eq!(ruled.approval, Approval::Person);
        assert!(ruled.may_approve("alice", "alice") && !ruled.may_approve("planner", "alice"));
    }

    #[test]
    fn an_approver_of_another_home_is_named_with_its_member() {
        let file = "[[rule]]\noperation = \"*\"\napproval = \"person\"\napprovers = [\"@bob\", \"@eve/ops\", \"carol\"]";
        let ruled = Policy::parse(file).unwrap().ruled("deploy", "prod");
        for may in ["@bob/bob", "@eve/ops", "carol"] {
            assert!(ruled.may_approve(may, "alice"), "{may}");
        }
        for not in [
            "bob",
            "@bob/planner",
            "@eve/eve",
            "@carol/carol",
            "ops",
            "alice",
        ] {
            assert!(!ruled.may_approve(not, "alice"), "{not}");
        }
    }

    #[test]
    fn the_homes_own_mailboxes_can_be_named_with_their_member() {
        let file = "[[rule]]\noperation = \"*\"\napproval = \"person\"\napprovers = [\"@alice/ops\", \"@alice\"]";
        let ruled = Policy::parse(file).unwrap().ruled("deploy", "prod");
        for may in ["ops", "alice", "@alice/ops"] {
            assert!(ruled.may_approve(may, "alice"), "{may}");
        }
        for not in ["planner", "@bob/ops", "@bob/alice"] {
            assert!(!ruled.may_approve(not, "alice"), "{not}");
        }
    }

    #[test]
    fn a_policy_that_could_be_misread_is_refused() {
        for bad in [
            "[[rule]]\noperation = \"x\"\napproval = \"person\"\napprovers = [\"\"]",
            "[[rule]]\noperation = \"x\"\napproval = \"person\"\napprovers = [\"@\"]",
            "[[rule]]\noperation = \"x\"\napproval = \"person\"\napprovers = [\"@a/\"]",
            "[[rule]]\noperation = \"x\"\napproval = \"person\"\napprovers = [\"@a b\"]",
            "[[rule]]\noperation = \"x\"\napproval = \"person\"\napprovers = [\"@a/b/c\"]",
            "[[rule]]\noperation = \"x\"\napproval = \"person\"\napprovers = []",
            "[[rule]]\noperation = \"p\u{200b}ay\"\napproval = \"never\"",
            "[[rule]]\noperation = \"p\u{430}y\"\napproval = \"never\"",
            "[[rule]]\noperation = \"deploy\"\ntarget = \"*-prod\"\napproval = \"never\"",
            "[[rule]]\noperation = \"deploy\"\ntarget = \"p*d\"\napproval = \"never\"",
            "[[rule]]\noperation = \"deploy**\"\napproval = \"never\"",
            "[[rule]]\noperation = \"\"\napproval = \"never\"",
            "surprise = 1",
            "horizon_days = 30",
            "request_ttl_hours = 0",
            "request_ttl_hours = 90000",
            "[[rule]]\noperation = \"x\"\napproval = \"maybe\"",
            "[[rule]]\noperation = \"x\"\napproval = \"auto\"\nwindow_minutes = 0",
        ] {
            assert!(Policy::parse(bad).is_err(), "{bad}");
        }
    }
}
