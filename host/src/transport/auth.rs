//! Who is at the other end of an internal connection.
//!
//! A connection proves once that both ends know the cluster's secret, before anything else is said on it:
//!
//! ```text
//! client                                             server
//!   hello: protocol, cluster, shards, who I am,   ->
//!          whom I expect, nonce
//!                                                 <- protocol, challenge (random, for this connection alone)
//!   HMAC-SHA256(secret, client | all of that)     ->
//!                                                 <- HMAC-SHA256(secret, server | all of that)
//! ```
//!
//! Both proofs cover both names, both sessions, and both random numbers: one that was overheard proves nothing on another connection, to
//! another node, or to the same node after its restart. Only a client that has proved itself learns whether cluster and shard count
//! agree. There is no TLS: whoever can change packets between nodes can take over a connection that was proved, so the internal network
//! has to be a private one.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The version of the internal protocol that this build speaks.
pub const PROTOCOL: u32 = 1;
/// Bytes of a message of the handshake, at most.
pub const MESSAGE_MAX_BYTES: usize = 4096;
/// Bytes of a name in it, at most.
const NAME_MAX_BYTES: usize = 64;
/// Bytes of a random number, as hexadecimal digits.
const RANDOM_DIGITS: usize = 32;

/// The cluster's secret.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of these bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(...)")
    }
}

/// A node in one of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Party {
    /// Its name.
    pub name: String,
    /// Its session: 32 hexadecimal digits.
    pub session: String,
}

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocol that it speaks.
    pub protocol: u32,
    /// Its cluster.
    pub cluster: String,
    /// How many shards that has.
    pub shards: u32,
    /// Who it is.
    pub from: Party,
    /// Whom it wants to reach.
    pub to: Party,
    /// Its random number.
    pub nonce: String,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The protocol that it speaks.
    pub protocol: u32,
    /// Its random number, used for this connection alone.
    pub challenge: String,
}

/// What either end sends to prove itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// 64 hexadecimal digits.
    pub proof: String,
}

/// Why a proved client is turned away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    /// In words, as the client should say it.
    pub error: String,
}

/// Whose proof it is. The two differ, so that neither can be sent back as the other.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// The one that connected.
    Client,
    /// The one that listens.
    Server,
}

impl Hello {
    /// Checks that every text is of a sane size, before anything is made of it.
    ///
    /// # Errors
    /// The field that is not.
    pub fn check(&self) -> Result<(), String> {
        let names = [
            ("cluster", &self.cluster),
            ("from.name", &self.from.name),
            ("from.session", &self.from.session),
            ("to.name", &self.to.name),
            ("to.session", &self.to.session),
        ];
        for (field, text) in names {
            if text.is_empty() || text.len() > NAME_MAX_BYTES {
                return Err(format!(
                    "{field} has {} bytes; valid are 1 to {NAME_MAX_BYTES}",
                    text.len()
                ));
            }
        }
        if self.nonce.len() != RANDOM_DIGITS {
            return Err(format!(
                "nonce has {} digits; {RANDOM_DIGITS} are needed",
                self.nonce.len()
            ));
        }
        Ok(())
    }
}

/// A new random number of 128 bits.
#[must_use]
pub fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The proof of one end.
#[must_use]
pub fn prove(secret: &Secret, end: End, hello: &Hello, challenge: &str) -> Proof {
    let tag = mac(secret, end, hello, challenge).finalize().into_bytes();
    let proof = tag.iter().map(|byte| format!("{byte:02x}")).collect();
    Proof { proof }
}

/// Whether a proof is that of an end that knows the secret. Takes the same time wherever it differs.
#[must_use]
pub fn is_proved(secret: &Secret, end: End, hello: &Hello, challenge: &str, proof: &Proof) -> bool {
    let digits = proof.proof.as_bytes();
    if digits.len() != 64 {
        return false;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    let bytes: Option<Vec<u8>> = digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(value(pair[0])? << 4 | value(pair[1])?).ok())
        .collect();
    bytes.is_some_and(|bytes| {
        mac(secret, end, hello, challenge)
            .verify_slice(&bytes)
            .is_ok()
    })
}

/// Over every field with its length in front, so that no two sets of fields make the same text.
fn mac(secret: &Secret, end: End, hello: &Hello, challenge: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&secret.0).expect("an HMAC takes a key of any length");
    let label = match end {
        End::Client => "quarry internal client",
        End::Server => "quarry internal server",
    };
    let (protocol, shards) = (hello.protocol.to_string(), hello.shards.to_string());
    for field in [
        label,
        &protocol,
        &hello.cluster,
        &shards,
        &hello.from.name,
        &hello.from.session,
        &hello.to.name,
        &hello.to.session,
        &hello.nonce,
        challenge,
    ] {
        mac.update(&(field.len() as u64).to_be_bytes());
        mac.update(field.as_bytes());
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let party = |name: &str| Party {
            name: name.into(),
            session: random(),
        };
        Hello {
            protocol: PROTOCOL,
            cluster: "c".into(),
            shards: 16,
            from: party("a"),
            to: party("b"),
            nonce: random(),
        }
    }

    #[test]
    fn hmac_is_that_of_rfc_4231() {
        for (key, data, expected) in [
            (
                vec![0x0b; 20],
                "Hi There".as_bytes().to_vec(),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?".to_vec(),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
            mac.update(&data);
            let tag: String = mac
                .finalize()
                .into_bytes()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(tag, expected);
        }
    }

    #[test]
    fn a_proof_holds_for_what_it_was_made_for_and_nothing_else() {
        let (secret, hello, challenge) = (Secret::new("s3cret"), hello(), random());
        let proof = prove(&secret, End::Client, &hello, &challenge);
        assert!(is_proved(&secret, End::Client, &hello, &challenge, &proof));
        // A proof cannot be sent back, and does not hold with another secret or on another connection.
        assert!(!is_proved(&secret, End::Server, &hello, &challenge, &proof));
        let other = Secret::new("s3creT");
        assert!(!is_proved(&other, End::Client, &hello, &challenge, &proof));
        assert!(!is_proved(&secret, End::Client, &hello, &random(), &proof));
        let changes: [fn(&mut Hello); 9] = [
            |hello| hello.protocol += 1,
            |hello| hello.cluster.push('c'),
            |hello| hello.shards += 1,
            |hello| hello.from.name.push('a'),
            |hello| hello.from.session = random(),
            |hello| hello.to.name.push('b'),
            |hello| hello.to.session = random(),
            |hello| hello.nonce = random(),
            // The same letters, cut elsewhere.
            |hello| {
                hello.from.name = format!("a{}", &hello.from.session[..1]);
                hello.from.session.remove(0);
            },
        ];
        for (change, apply) in changes.iter().enumerate() {
            let mut changed = hello.clone();
            apply(&mut changed);
            assert!(
                !is_proved(&secret, End::Client, &changed, &challenge, &proof),
                "change {change}"
            );
        }
    }

    #[test]
    fn what_is_no_proof_is_none() {
        let (secret, hello, challenge) = (Secret::new("s"), hello(), random());
        let good = prove(&secret, End::Client, &hello, &challenge).proof;
        for proof in [
            String::new(),
            good[..62].into(),
            format!("{good}00"),
            "g".repeat(64),
            "é".repeat(32),
            "0".repeat(64),
        ] {
            let proof = Proof { proof };
            assert!(!is_proved(&secret, End::Client, &hello, &challenge, &proof));
        }
    }

    #[test]
    fn texts_of_a_hello_are_bounded() {
        assert_eq!(hello().check(), Ok(()));
        let mut long = hello();
        long.to.name = "n".repeat(65);
        assert_eq!(
            long.check().expect_err("too long"),
            "to.name has 65 bytes; valid are 1 to 64"
        );
        let mut short = hello();
        short.nonce.pop();
        assert!(short.check().expect_err("too short").contains("31 digits"));
    }
}
