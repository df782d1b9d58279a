//! Turns flags into the top layer of the configuration.

use std::path::{Path, PathBuf};

use super::{Error, args};
use crate::config::{FileSource, Flag, Sources};

impl args::Settings {
    /// All layers for a verb that runs in the current folder.
    #[must_use]
    pub fn sources(&self) -> Sources {
        self.sources_in(Path::new(""))
    }

    /// All layers, with the file of a folder unless `--config` names another one.
    #[must_use]
    pub fn sources_in(&self, folder: &Path) -> Sources {
        let file = match &self.config {
            Some(path) => FileSource::Required(path.clone()),
            None => FileSource::IfPresent(folder.join("quarry.toml")),
        };
        let mut sources = Sources::of_process(file);
        sources.flags = self.flags();
        sources
    }

    fn flags(&self) -> Vec<Flag> {
        let flag = |flag: &str, key: String, value: &str| Flag {
            flag: flag.into(),
            key,
            value: value.into(),
        };
        let mut flags = Vec::new();
        for set in &self.set {
            flags.push(flag("--set", set.name.clone(), &set.value));
        }
        for (name, key, value) in [
            ("--store", "store", &self.store),
            ("--path", "path", &self.path),
            ("--shards", "shards", &self.shards),
            ("--module", "module.path", &self.module),
            ("--listen", "http.listen", &self.listen),
            ("--node", "node", &self.node),
            ("--cluster", "cluster", &self.cluster),
            ("--strategy", "strategy", &self.strategy),
            ("--lease-ttl", "lease.ttl", &self.lease_ttl),
            (
                "--internal-listen",
                "internal.listen",
                &self.internal_listen,
            ),
            ("--advertise", "internal.advertise", &self.advertise),
            ("--zone", "lease.zone", &self.zone),
            ("--probe", "probe", &self.probe),
            ("--merge-operator", "merge_operator", &self.merge_operator),
            ("--cache", "cache.capacity", &self.cache),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ] {
            flags.extend(value.as_ref().map(|value| flag(name, key.into(), value)));
        }
        if !self.grant.is_empty() {
            let all = self.grant.join(",");
            flags.push(flag("--grant", "module.grants".into(), &all));
        }
        for (name, table, entries) in [
            ("--store-option", "store_options", &self.store_option),
            ("--option", "module.options", &self.option),
            ("--setting", "settings", &self.setting),
            ("--limit", "limits", &self.limit),
        ] {
            flags.extend(
                entries
                    .iter()
                    .map(|entry| flag(name, format!("{table}.{}", entry.name), &entry.value)),
            );
        }
        flags
    }
}

impl args::Dev {
    /// All layers, with the file of the project.
    ///
    /// # Errors
    /// When `--data-dir` cannot be made a URL.
    pub fn sources(&self) -> Result<Sources, Error> {
        let mut sources = self.settings.sources_in(&self.dir);
        if let Some(folder) = &self.data_dir {
            let value = file_url(folder)?;
            sources.flags.push(Flag {
                flag: "--data-dir".into(),
                key: "store".into(),
                value,
            });
        }
        Ok(sources)
    }
}

pub(super) fn file_url(folder: &Path) -> Result<String, Error> {
    let absolute: PathBuf = std::path::absolute(folder).map_err(|source| Error::Io {
        what: format!("{}", folder.display()),
        source,
    })?;
    let url = url::Url::from_directory_path(&absolute);
    let url = url.map_err(|()| {
        Error::Usage(format!(
            "{} cannot be a store: not an absolute path",
            absolute.display()
        ))
    })?;
    Ok(url.as_str().trim_end_matches('/').to_owned())
}
