//! The port [`Reviews`]: who a caller is and what they may do, asked of the API server one question
//! at a time.

use std::collections::BTreeMap;

use ferrolet_ports::{AccessAsk, AccessVerdict, ApiError, Fut, Reviews, Subject, TokenVerdict};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};

use crate::client::{Client, Place};

/// Asks the API server.
pub struct ApiReviews {
    client: Client,
}

impl ApiReviews {
    /// Asks through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Reviews for ApiReviews {
    fn token_review<'a>(&'a self, token: &'a str) -> Fut<'a, Result<TokenVerdict, ApiError>> {
        Box::pin(async move {
            let ask = TokenReview {
                spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
                ..TokenReview::default()
            };
            let place = Place::all::<TokenReview>(None);
            let answer: TokenReview = self.client.create(&place, &ask).await?;
            Ok(token_verdict(answer))
        })
    }

    fn subject_access_review<'a>(
        &'a self,
        ask: &'a AccessAsk,
    ) -> Fut<'a, Result<AccessVerdict, ApiError>> {
        Box::pin(async move {
            let place = Place::all::<SubjectAccessReview>(None);
            let answer: SubjectAccessReview = self.client.create(&place, &question(ask)).await?;
            Ok(access_verdict(answer))
        })
    }
}

fn token_verdict(answer: TokenReview) -> TokenVerdict {
    let status = answer.status.unwrap_or_default();
    let user = status.user.filter(|_| status.authenticated == Some(true));
    match user {
        Some(user) => TokenVerdict::Authenticated(Subject {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }),
        None => TokenVerdict::Refused { error: status.error.unwrap_or_default() },
    }
}

fn question(ask: &AccessAsk) -> SubjectAccessReview {
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let extra: BTreeMap<String, Vec<String>> = ask.subject.extra.clone();
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: said(&ask.subject.name),
            uid: said(&ask.subject.uid),
            groups: Some(ask.subject.groups.clone()),
            extra: Some(extra).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: said(&ask.verb),
                version: Some("v1".to_owned()),
                resource: said(&ask.resource),
                subresource: said(&ask.subresource),
                name: said(&ask.name),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}

fn access_verdict(answer: SubjectAccessReview) -> AccessVerdict {
    let status = answer.status.unwrap_or_default();
    if status.allowed && status.denied != Some(true) {
        AccessVerdict::Allowed
    } else {
        AccessVerdict::Refused
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn a_token_is_somebodys_only_when_the_server_says_so() {
        let check = |status: serde_json::Value, name: Option<&str>| {
            let answer = from_value(json!({"spec": {}, "status": status})).unwrap();
            let found = match token_verdict(answer) {
                TokenVerdict::Authenticated(subject) => Some(subject.name),
                TokenVerdict::Refused { .. } => None,
            };
            assert_eq!(found.as_deref(), name);
        };
        check(json!({"authenticated": true, "user": {"username": "u"}}), Some("u"));
        check(json!({"authenticated": false, "user": {"username": "u"}}), None);
        check(json!({"error": "expired"}), None);
    }

    #[test]
    fn access_is_asked_for_in_the_callers_name() {
        let subject =
            Subject { name: "u".to_owned(), groups: vec!["g".to_owned()], ..Subject::default() };
        let ask = AccessAsk {
            subject,
            verb: "get".to_owned(),
            resource: "nodes".to_owned(),
            subresource: "stats".to_owned(),
            name: "n".to_owned(),
        };
        let expected = json!({
            "user": "u", "groups": ["g"],
            "resourceAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes", "subresource": "stats", "name": "n",
            },
        });
        assert_eq!(to_value(question(&ask)).unwrap()["spec"], expected);
        let verdict =
            |status| access_verdict(from_value(json!({"spec": {}, "status": status})).unwrap());
        assert_eq!(verdict(json!({"allowed": true})), AccessVerdict::Allowed);
        assert_eq!(verdict(json!({"allowed": false})), AccessVerdict::Refused);
        assert_eq!(verdict(json!({"allowed": true, "denied": true})), AccessVerdict::Refused);
    }
}
