"""What a training means to OpenLineage; its provider, which asks, may not be installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import DatasetFacet

    from airflow_learner_provider.training.lineage import Dataset


def build_lineage(
    values: Mapping[str, Any], outcome: Mapping[str, Any]
) -> OperatorLineage[Any, Any]:
    """Build the lineage of a training.

    :param values: fields of its spec.
    :param outcome: of the training, also of one that failed.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset

    from airflow_learner_provider.training.lineage import list_inputs, list_outputs
    from airflow_learner_provider.training.spec import parse_training_spec

    spec = parse_training_spec(values)
    return OperatorLineage(
        inputs=[
            InputDataset(data.namespace, data.name, facets=_build_facets(data))
            for data in list_inputs(spec, outcome)
        ],
        outputs=[_build_output(data) for data in list_outputs(spec, outcome)],
    )


def _build_output(data: Dataset) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    output = OutputDataset(data.namespace, data.name, facets=_build_facets(data))
    if data.size is not None:
        of_file = statistics.OutputStatisticsOutputDatasetFacet(size=data.size, fileCount=1)
        output.outputFacets = {"outputStatistics": of_file}
    return output


def _build_facets(data: Dataset) -> dict[str, DatasetFacet]:
    from openlineage.client.facet_v2 import dataset_version_dataset, datasource_dataset

    facets: dict[str, DatasetFacet] = {}
    if data.endpoint is not None:
        facets["dataSource"] = datasource_dataset.DatasourceDatasetFacet(
            name=data.namespace, uri=data.endpoint
        )
    if data.sha256 is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(data.sha256)
    return facets
