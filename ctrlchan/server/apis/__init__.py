"""The APIs that brokers and the controller answer alike: ApiVersions, Metadata, DescribeCluster, configs."""
