//! Commands of one person at one moment: each is told what became of its own, and never what became of the other's.

use super::*;

/// Each step is watched for longer than the other command needs to give its order.
const SLOWLY: [&str; 4] = ["--wave", "50%", "--bake", "5s"];

#[tokio::test(flavor = "multi_thread")]
async fn of_two_deploys_at_once_each_is_told_its_own() {
    let folder = folder();
    let node = empty(folder.path()).await;
    deploy(&node, "counter", &[]).await.with(0);
    for round in ["first", "second"] {
        // Other options each time, so that none of them is what runs already.
        let option = format!("round={round}");
        let begin = |module: &str| {
            let module = guest(module).display().to_string();
            let mut words = vec!["deploy", &*module, "--option", &*option];
            words.extend(SLOWLY);
            started(&node, &words)
        };
        let (one, other) = (begin("kv"), begin("handoff"));
        let (one, other) = tokio::join!(one.ended(), other.ended());
        let (won, lost) = match (one.code, other.code) {
            (Some(0), _) => (one, other),
            _ => (other, one),
        };
        let won = won.with(0).json();
        assert_eq!(won["outcome"], "adopted", "{won}");
        let refused = error(&lost.with(4).stderr);
        assert_eq!(refused["code"], "rollout-busy", "{refused}");
        let status = rollout(&node).await;
        let (number, revision) = (&won["rollout"], &won["revision"]);
        assert_eq!(&status["last"]["rollout"], number, "{status}");
        assert_eq!(&status["last"]["target"], revision, "{status}");
        assert_eq!(&status["stable"], revision, "{status}");
        let says = format!("rollout {number}, of revision {revision} by");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains(&says), "{says}: {message}");
    }
    node.stop().await;
}

/// Whoever did not see the answer gives the same order again, and is told of the same rollout, also after its end.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_given_again_is_the_same() {
    let folder = folder();
    let node = empty(folder.path()).await;
    deploy(&node, "counter", &[]).await.with(0);
    deploy(&node, "kv", &[]).await.with(0);
    let order = |number: &str| serde_json::json!({"target": 1, "by": "ann", "order": number});
    let limit = std::time::Duration::from_secs(60);
    let post = async |number: &str| {
        let order = order(number);
        node.client.post_json("/v1/rollout", &order, limit).await
    };
    let mine = "0123456789abcdef".repeat(2);
    let first = post(&mine).await.expect("ordered");
    assert_eq!(first["outcome"], "begun", "{first}");
    assert_eq!(post(&mine).await.expect("ordered"), first);
    let ended = rollout_until(&node, "its end", |status| status["active"].is_null()).await;
    assert_eq!(ended["last"]["order"], *mine, "{ended}");
    assert_eq!(post(&mine).await.expect("ordered"), first);
    let others = post(&"f".repeat(32)).await.expect("ordered");
    assert_eq!(others["outcome"], "unchanged", "{others}");
    for wrong in ["", "0123", &"F".repeat(32), &"0".repeat(33)] {
        let refused = post(wrong).await.expect_err("it is none");
        assert_eq!(refused.code(), "invalid-request", "{wrong:?}: {refused}");
    }
    node.stop().await;
}
