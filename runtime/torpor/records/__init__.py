"""The frozen vocabulary: ids, blocks, journal records, events, commands and frames. No behaviour."""
