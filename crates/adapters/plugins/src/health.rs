//! What drivers say of health, in the API's words. Kinds that we do not know are passed over, as
//! the interface wants it.

use ferrolet_ports::CsiAilment;

use crate::proto::csi::{
    StorageHealthErrorType, VolumeCapability, VolumeHealth, VolumeHealthErrorType,
    node_get_storage_health_response::StorageBackendHealth,
    volume_capability::{AccessType, access_mode::Mode},
};

/// Upstream's bound for one driver; who says more is not believed.
const MOST_CONDITIONS: usize = 16;

/// What is wrong with a volume.
pub(crate) fn volume_ailments(told: VolumeHealth) -> Vec<CsiAilment> {
    let entries = told.health_statuses.into_iter();
    let ailments = entries.filter_map(|entry| {
        let kind = match entry.status() {
            VolumeHealthErrorType::Degraded => "Degraded",
            VolumeHealthErrorType::Inaccessible => "Inaccessible",
            VolumeHealthErrorType::DataLoss => "DataLoss",
            VolumeHealthErrorType::UnknownVolumeHealthType => return None,
        };
        Some(CsiAilment { kind, reason: entry.reason, message: entry.message, concerns: None })
    });
    ailments.collect()
}

/// What is wrong with all that a driver stores.
pub(crate) fn storage_ailments(told: Vec<StorageBackendHealth>) -> Result<Vec<CsiAilment>, String> {
    if told.len() > MOST_CONDITIONS {
        return Err(format!(
            "NodeGetStorageHealth returned {} conditions, maximum is {MOST_CONDITIONS}",
            told.len()
        ));
    }
    let mut ailments = Vec::new();
    for (n, entry) in told.into_iter().enumerate() {
        let kind = match entry.status() {
            StorageHealthErrorType::StorageDegraded => "StorageDegraded",
            StorageHealthErrorType::StorageUnreachable => "StorageUnreachable",
            StorageHealthErrorType::UnknownStorageHealthErrorType => continue,
        };
        let concerns = entry.volume_capability.as_ref().map(modes_of).transpose();
        ailments.push(CsiAilment {
            kind,
            concerns: concerns.map_err(|why| {
                format!("NodeGetStorageHealth condition {n} has invalid volume capability: {why}")
            })?,
            reason: entry.reason,
            message: entry.message,
        });
    }
    Ok(ailments)
}

/// Access mode and volume mode of a capability.
fn modes_of(capability: &VolumeCapability) -> Result<(&'static str, &'static str), String> {
    let volume_mode = match &capability.access_type {
        Some(AccessType::Block(_)) => "Block",
        Some(AccessType::Mount(_)) => "Filesystem",
        None => return Err("access type is required".to_owned()),
    };
    let Some(access_mode) = &capability.access_mode else {
        return Err("access mode is required".to_owned());
    };
    let access_mode = match access_mode.mode() {
        Mode::SingleNodeWriter | Mode::SingleNodeReaderOnly | Mode::SingleNodeMultiWriter => {
            "ReadWriteOnce"
        }
        Mode::SingleNodeSingleWriter => "ReadWriteOncePod",
        Mode::MultiNodeReaderOnly => "ReadOnlyMany",
        Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => "ReadWriteMany",
        Mode::Unknown => return Err("unsupported access mode \"UNKNOWN\"".to_owned()),
    };
    Ok((access_mode, volume_mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::csi::{
        volume_capability::{AccessMode, BlockVolume, MountVolume},
        volume_health::VolumeHealthEntry,
    };

    #[test]
    fn kinds_that_nobody_knows_are_passed_over() {
        let entry = |status: i32, reason: &str| VolumeHealthEntry {
            status,
            reason: reason.to_owned(),
            message: "why".to_owned(),
        };
        let told = VolumeHealth {
            volume_id: "v".to_owned(),
            health_statuses: vec![
                entry(1, "A"),
                entry(0, "B"),
                entry(77, "C"),
                entry(2, "D"),
                entry(3, "E"),
            ],
        };
        let found: Vec<_> =
            volume_ailments(told).into_iter().map(|it| (it.kind, it.reason)).collect();
        let expected = [("Degraded", "A"), ("Inaccessible", "D"), ("DataLoss", "E")];
        assert_eq!(found, expected.map(|(kind, it)| (kind, it.to_owned())));
    }

    #[test]
    fn storage_says_which_volumes_it_means_or_is_not_believed() {
        let capability = |mode: Mode, access_type: Option<AccessType>| VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type,
        };
        let block = || Some(AccessType::Block(BlockVolume {}));
        let files = || Some(AccessType::Mount(MountVolume::default()));
        let check = |capability: Option<VolumeCapability>,
                     expected: Result<Option<(&str, &str)>, &str>| {
            let told = StorageBackendHealth {
                status: StorageHealthErrorType::StorageDegraded.into(),
                reason: "Slow".to_owned(),
                message: String::new(),
                volume_capability: capability,
            };
            let found = storage_ailments(vec![told]).map(|it| it[0].concerns);
            let why = "NodeGetStorageHealth condition 0 has invalid volume capability: ";
            assert_eq!(found, expected.map_err(|it| format!("{why}{it}")));
        };
        check(None, Ok(None));
        check(
            Some(capability(Mode::SingleNodeMultiWriter, files())),
            Ok(Some(("ReadWriteOnce", "Filesystem"))),
        );
        check(
            Some(capability(Mode::SingleNodeSingleWriter, block())),
            Ok(Some(("ReadWriteOncePod", "Block"))),
        );
        check(
            Some(capability(Mode::MultiNodeReaderOnly, files())),
            Ok(Some(("ReadOnlyMany", "Filesystem"))),
        );
        check(
            Some(capability(Mode::MultiNodeSingleWriter, files())),
            Ok(Some(("ReadWriteMany", "Filesystem"))),
        );
        check(Some(capability(Mode::MultiNodeMultiWriter, None)), Err("access type is required"));
        check(
            Some(VolumeCapability { access_mode: None, access_type: files() }),
            Err("access mode is required"),
        );
        let many = vec![StorageBackendHealth::default(); 17];
        let refused = storage_ailments(many).unwrap_err();
        assert_eq!(refused, "NodeGetStorageHealth returned 17 conditions, maximum is 16");
        // One that we do not know is no condition.
        assert_eq!(storage_ailments(vec![StorageBackendHealth::default()]), Ok(vec![]));
    }
}
