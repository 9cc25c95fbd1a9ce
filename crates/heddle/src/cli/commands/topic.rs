//! `heddle topic create | post | subscribe | unsubscribe | list`.

use clap::{Args as ClapArgs, Subcommand};
use heddle_wire::ipc::{SendBody, TopicAnswer, TopicBody, TopicList};

use super::send;
use crate::cli::keyed::Keyed;
use crate::cli::text::table;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a topic
    Create {
        topic: String,
        #[command(flatten)]
        keyed: Keyed,
    },
    /// Post a message to a topic, as `heddle send '#topic' TEXT` does
    Post {
        topic: String,
        text: String,
        /// The idempotency key
        #[arg(long)]
        id: Option<String>,
    },
    /// Receive what is posted from now on; creates a missing topic
    Subscribe {
        topic: String,
        #[command(flatten)]
        keyed: Keyed,
    },
    /// Stop receiving
    Unsubscribe {
        topic: String,
        #[command(flatten)]
        keyed: Keyed,
    },
    /// Show the topics and who receives them
    List,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Create { topic, keyed } => change(context, "create", (topic, keyed), |a| {
            if a.changed {
                format!("created #{}\n", a.topic)
            } else {
                format!("#{} exists already\n", a.topic)
            }
        }),
        Verb::Subscribe { topic, keyed } => change(context, "subscribe", (topic, keyed), |a| {
            let agent = a.agent.as_deref().unwrap_or_default();
            if a.changed {
                format!("@{agent} receives #{}\n", a.topic)
            } else {
                format!("@{agent} received #{} already\n", a.topic)
            }
        }),
        Verb::Unsubscribe { topic, keyed } => change(context, "unsubscribe", (topic, keyed), |a| {
            let agent = a.agent.as_deref().unwrap_or_default();
            if a.changed {
                format!("@{agent} receives #{} no longer\n", a.topic)
            } else {
                format!("@{agent} did not receive #{}\n", a.topic)
            }
        }),
        Verb::Post { topic, text, id } => post(context, &topic, text, id),
        Verb::List => list(context),
    }
}

fn change(
    context: &Context,
    verb: &str,
    (topic, keyed): (String, Keyed),
    text: impl FnOnce(&TopicAnswer) -> String,
) -> Result<(), CliError> {
    let answer = context.client().under(keyed.key).topic(
        verb,
        &TopicBody {
            topic,
            agent: context.agent.clone(),
            mesh: context.mesh.clone(),
        },
    )?;
    context.print(&answer, text)
}

fn post(context: &Context, topic: &str, text: String, id: Option<String>) -> Result<(), CliError> {
    let topic = topic.strip_prefix('#').unwrap_or(topic);
    let id = id.unwrap_or_else(|| Context::mint_id().to_string());
    let answer = context.client().send(&SendBody {
        to: format!("#{topic}"),
        message: text,
        client_message_id: Some(id.clone()),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
        ..SendBody::default()
    });
    let answer = answer.map_err(|error| send::with_id(error, &id))?;
    context.print(&answer, |answer| {
        format!(
            "queued for #{topic}, safe on disk ({})\n",
            answer.client_message_id
        )
    })
}

fn list(context: &Context) -> Result<(), CliError> {
    let query: Vec<_> = context.mesh_scope().into_iter().collect();
    let list = context.client().topics(&query)?;
    context.print(&list, describe)
}

fn describe(list: &TopicList) -> String {
    if list.topics.is_empty() && !list.stale {
        return "no topics yet; create one with `heddle topic create NAME`\n".to_owned();
    }
    let mut rows = vec![vec!["TOPIC".to_owned(), "SUBSCRIBERS".to_owned()]];
    for topic in &list.topics {
        rows.push(vec![
            format!("#{}", topic.topic),
            topic.subscribers.join(" "),
        ]);
    }
    let mut text = table(&rows);
    if list.stale {
        text.push_str(&format!(
            "(as of {}: the broker is out of reach)\n",
            list.as_of.as_deref().unwrap_or("an unknown time")
        ));
    }
    text
}
