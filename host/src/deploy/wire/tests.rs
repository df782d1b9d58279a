use quarry_core::deploy::ShardRange;

use super::*;
use crate::store::Store;

fn order(text: &str) -> Result<(What, RolloutOptions), String> {
    let body: OrderBody = serde_json::from_str(text).map_err(|error| error.to_string())?;
    body.read(16).map_err(|error| error.to_string())
}

#[test]
fn orders_are_read_strictly() {
    let chosen = Selection::These(vec![ShardRange { first: 0, last: 3 }]);
    for (text, what, plan, first) in [
        (
            r#"{"target":3}"#,
            What::Revision(3),
            Plan::All,
            Selection::None,
        ),
        (r#"{"back":true}"#, What::Back, Plan::All, Selection::None),
        (
            r#"{"target":3,"plan":"waves","percent":25}"#,
            What::Revision(3),
            Plan::Waves(25),
            Selection::None,
        ),
        (
            r#"{"target":3,"plan":"canary","percent":5}"#,
            What::Revision(3),
            Plan::Canary(5),
            Selection::None,
        ),
        (
            r#"{"target":3,"plan":"chosen","shards":"0-3"}"#,
            What::Revision(3),
            Plan::Chosen,
            chosen,
        ),
    ] {
        let (found, options) = order(text).expect(text);
        assert_eq!(
            (found, options.plan, options.first),
            (what, plan, first),
            "{text}"
        );
    }
    let (_, options) =
        order(r#"{"target":1,"step_timeout":"90s","bake":"1m","gates":{"traps":2}}"#)
            .expect("an order");
    assert_eq!(
        (options.step_timeout, options.bake),
        (Duration::from_secs(90), Duration::from_secs(60))
    );
    assert_eq!(
        options.gates,
        Gates {
            traps: 2,
            ..Gates::default()
        }
    );
    for (text, says) in [
        ("{}", "exactly one of"),
        (r#"{"target":1,"back":true}"#, "exactly one of"),
        (r#"{"target":1,"plan":"waves"}"#, "waves need `percent`"),
        (
            r#"{"target":1,"plan":"canary","percent":5,"shards":"1"}"#,
            "no `shards`",
        ),
        (r#"{"target":1,"plan":"chosen"}"#, "a choice needs `shards`"),
        (
            r#"{"target":1,"plan":"chosen","shards":"3-20"}"#,
            "`3-20` names no shards: there is no such shard",
        ),
        (r#"{"target":1,"percent":5}"#, "the plan `all` has neither"),
        (r#"{"target":1,"plan":"slow"}"#, "slow"),
        (r#"{"target":1,"wave":5}"#, "unknown field `wave`"),
        (r#"{"target":-1}"#, "-1"),
        (r#"{"target":1,"bake":"soon"}"#, "soon"),
    ] {
        let error = order(text).expect_err(text);
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[tokio::test]
async fn drafts_get_the_sizes_of_their_components() {
    let store = Store::open("memory:", &BTreeMap::new()).expect("store");
    let objects = Objects::new(&store, "");
    let (digest, _) = objects
        .put_module("component".into())
        .await
        .expect("stored");
    let draft = |digest: &str| {
        let text = format!(
            r#"{{"modules":[{{"digest":"{digest}","options":{{"b":1,"a":[2]}}}}],"note":"n"}}"#
        );
        serde_json::from_str::<DraftBody>(&text).expect("a draft")
    };
    for text in [digest.to_string(), format!("sha256:{digest}")] {
        let read = draft(&text).read(&objects).await.expect("complete");
        let module = &read.modules[0];
        assert_eq!((module.name.as_str(), module.size), ("main", 9));
        assert_eq!(
            module.options, r#"{"a":[2],"b":1}"#,
            "one spelling for the same"
        );
    }
    for (digest, says) in [
        ("abc".to_owned(), "valid are 64"),
        ("0".repeat(64), "there is no module"),
    ] {
        let error = draft(&digest).read(&objects).await.expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
    let mut many = draft(&digest.to_string());
    many.modules = vec![many.modules[0].clone(); 17];
    let error = many.read(&objects).await.expect_err("too many");
    assert!(error.to_string().contains("1 to 16 modules"), "{error}");
}

#[tokio::test]
async fn revisions_are_listed_by_pages_and_with_what_becomes_of_them() {
    let store = Store::open("memory:", &BTreeMap::new()).expect("store");
    let objects = Objects::new(&store, "");
    let (digest, _) = objects
        .put_module("component".into())
        .await
        .expect("stored");
    let text = format!(r#"{{"modules":[{{"digest":"{digest}"}}],"author":"me"}}"#);
    for _ in 0..3 {
        let body: DraftBody = serde_json::from_str(&text).expect("a draft");
        let draft = body.read(&objects).await.expect("complete");
        objects.create_revision(draft).await.expect("recorded");
    }
    let first = RolloutRecord::begin_with(2);
    objects
        .write_rollout(None, first.clone())
        .await
        .expect("written");
    let page = revisions(&objects, None, 2).await.expect("listed");
    let numbers = |page: &Value| -> Vec<u64> {
        let listed = page["revisions"].as_array().expect("a list");
        listed
            .iter()
            .filter_map(|revision| revision["revision"].as_u64())
            .collect()
    };
    assert_eq!(
        (numbers(&page), &page["more"]),
        (vec![3, 2], &Value::Bool(true))
    );
    assert_eq!(page["revisions"][1]["state"], "stable");
    assert_eq!(page["revisions"][1]["modules"][0]["options"], json!({}));
    let rest = revisions(&objects, Some(2), 2).await.expect("listed");
    assert_eq!(
        (numbers(&rest), &rest["more"]),
        (vec![1], &Value::Bool(false))
    );
    assert_eq!(rest["revisions"][0]["state"], Value::Null);

    let shown = record(&first);
    assert_eq!(shown["stable"], 2);
    assert_eq!(shown["last"]["outcome"], "adopted");
    assert!(shown.get("nonce").is_none());
}
